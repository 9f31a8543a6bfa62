"""Where a simulator stands, as tensors: everything that decides what an environment does next, to the bit.

Only for Gymnasium's classic control and MuJoCo environments, and for environments and wrappers that tell it themselves
(`StatefulEnv`), inside Gymnasium's own wrappers: only of these is it known what "everything" is. MuJoCo's integration
state is not enough: `mj_step` leaves body positions one substep behind, and some environments read them before the next
step, so positions are kept as they are and not recomputed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
import torch
from gymnasium.envs import classic_control
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray
from torch import Tensor

from understudy.envs.builtin.kept_columns import KeptColumns
from understudy.envs.gym import Env

CLASSIC = (
    classic_control.CartPoleEnv,
    classic_control.PendulumEnv,
    classic_control.AcrobotEnv,
    classic_control.MountainCarEnv,
    classic_control.Continuous_MountainCarEnv,
)
MUJOCO = "gymnasium.envs.mujoco."
STATELESS = (OrderEnforcing, PassiveEnvChecker, KeptColumns)
"""Wrappers that remember nothing once an environment has been reset."""
BEHIND = ("xpos", "xipos")
"""What MuJoCo environments read from before the step."""


@runtime_checkable
class StatefulEnv(Protocol):
    """A world, or a wrapper, that says itself what it remembers; the generator `np_random` is saved for it."""

    def tell(self) -> dict[str, NDArray[Any]]:
        """Arrays of numbers, of the same names, shapes and dtypes whenever they are asked for."""
        ...

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None: ...


def can_snapshot(env: Env) -> bool:
    """Whether this environment, with all its wrappers, is one whose whole state is known."""
    known = all(isinstance(wrapper, (TimeLimit, *STATELESS, StatefulEnv)) for wrapper in _wrappers(env))
    inner = env.unwrapped
    told = type(inner) in CLASSIC or _is_mujoco(inner) or isinstance(inner, StatefulEnv)
    return known and told and isinstance(inner.np_random.bit_generator, np.random.PCG64)


def snapshot(env: Env) -> dict[str, Tensor]:
    """Everything that decides what happens next; for environments that `can_snapshot`, once they were reset."""
    inner: Any = env.unwrapped
    parts = {
        f"{place}.{name}": torch.from_numpy(part) for place, one in _tellers(env) for name, part in one.tell().items()
    }
    if _is_mujoco(inner):
        parts |= _mujoco_state(inner)
    elif type(inner) in CLASSIC:
        parts |= _classic_state(inner)
    elapsed = [wrapper._elapsed_steps or 0 for wrapper in _limits(env)]
    return {**parts, "elapsed": torch.tensor(elapsed, dtype=torch.int64), "random": _random_state(inner)}


def restore_snapshot(env: Env, parts: Mapping[str, Tensor]) -> None:
    """Let an environment that was reset at least once stand where `snapshot` was taken."""
    inner: Any = env.unwrapped
    for place, one in _tellers(env):
        one.recall({name: parts[f"{place}.{name}"].numpy() for name in one.tell()})
    if _is_mujoco(inner):
        _put_mujoco(inner, parts)
    elif type(inner) in CLASSIC:
        kind = np.float32 if bool(parts["single"]) else np.float64
        inner.state = parts["state"].numpy().astype(kind)
    for wrapper, elapsed in zip(_limits(env), parts["elapsed"], strict=True):
        wrapper._elapsed_steps = int(elapsed)
    _put_random(inner, parts["random"])


def _tellers(env: Env) -> list[tuple[int, StatefulEnv]]:
    """Who says itself what it remembers, numbered from the outermost."""
    return [(place, one) for place, one in enumerate([*_wrappers(env), env.unwrapped]) if isinstance(one, StatefulEnv)]


def _wrappers(env: Env) -> Iterator["gymnasium.Wrapper[Any, Any, Any, Any]"]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _limits(env: Env) -> list[Any]:
    return [wrapper for wrapper in _wrappers(env) if isinstance(wrapper, TimeLimit)]


def _is_mujoco(inner: Env) -> bool:
    return type(inner).__module__.startswith(MUJOCO)


def _classic_state(inner: Any) -> dict[str, Tensor]:
    """Some keep float32 states and start from float64 ones: arithmetic follows the dtype, so it is state too."""
    state = np.asarray(inner.state)
    single = torch.tensor(state.dtype == np.float32)
    return {"state": torch.from_numpy(state.astype(np.float64)), "single": single}


def _mujoco_state(inner: Any) -> dict[str, Tensor]:
    import mujoco  # type: ignore[import-untyped]

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.zeros(mujoco.mj_stateSize(inner.model, kind))
    mujoco.mj_getState(inner.model, inner.data, physics, kind)
    behind = {name: torch.from_numpy(getattr(inner.data, name).copy()) for name in BEHIND}
    return {"physics": torch.from_numpy(physics), **behind}


def _put_mujoco(inner: Any, parts: Mapping[str, Tensor]) -> None:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(inner.model, inner.data, parts["physics"].numpy(), kind)
    for name in BEHIND:
        getattr(inner.data, name)[:] = parts[name].numpy()


def _random_state(inner: Env) -> Tensor:
    """The environment's generator, 48 bytes."""
    told: Any = inner.np_random.bit_generator.state
    numbers = told["state"]["state"], told["state"]["inc"], told["has_uint32"] << 32 | told["uinteger"]
    data = b"".join(int(number).to_bytes(16, "little") for number in numbers)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _put_random(inner: Env, data: Tensor) -> None:
    raw = data.numpy().tobytes()
    state, increment, rest = (int.from_bytes(raw[place : place + 16], "little") for place in (0, 16, 32))
    inner.np_random.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": increment},
        "has_uint32": rest >> 32,
        "uinteger": rest & 0xFFFFFFFF,
    }
