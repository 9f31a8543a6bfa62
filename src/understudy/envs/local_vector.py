"""N environments of Gymnasium's registry in this process: a plain loop, and nothing else between them and tensors.

Observations are written once, into one buffer per group. Where an episode ends, its final observation is put aside
and the environment starts anew in the same step, so no step is a dummy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, RunError, UnderstudyError
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.envs.gym import Env, env_spec, make_env
from understudy.envs.observation_rows import ObservationRows
from understudy.envs.snapshots import can_tell, put_back, snapshot
from understudy.envs.vector import (
    REWARD_TERMS,
    Step,
    action_array,
    check_finite,
    check_reward,
    environment_seeds,
)

WHOLE = -1
"""Steps left in a first episode that is not shortened."""


@final
class LocalVector:
    """The vector world that is used unless another is asked for.

    `spread` shortens every first episode to a random length, so that environments with a time limit do not all end at
    once for ever after; what is cut short is marked truncated, with its true final observation. `extras` names the
    numbers in `info` to keep: by default those that begin with "reward".
    """

    def __init__(
        self,
        name: str,
        count: int,
        *,
        spread: bool = False,
        extras: Sequence[str] | None = None,
        make: Callable[[str], Env] = make_env,
    ) -> None:
        if count < 1:
            raise ConfigError("envs", "a vector needs environments", got=count, expected="at least 1")
        self._where = f"environment '{name}'"
        self._envs = [make(name) for _ in range(count)]
        self._spec = env_spec(self._envs[0], name)
        self._longest = _time_limit(self._envs[0], name) if spread else 0
        self._rows = ObservationRows(self._envs[0].observation_space, self._spec, count, self._where)
        self._finals = ObservationRows(self._envs[0].observation_space, self._spec, count, self._where)
        self._left = np.full(count, WHOLE, np.int64)
        self._asked = 0
        """The environment whose answer is waited for."""
        self._shortened: set[int] = set()
        self._extra_names = None if extras is None else tuple(extras)
        self._extras: dict[str, Tensor] = {}
        self._columns: dict[str, NDArray[np.float32]] = {}
        """The same numbers, to write into."""
        self._allocate(count)

    def _allocate(self, count: int) -> None:
        self._reward, self._valid = np.zeros(count, np.float32), torch.ones(count, dtype=torch.bool)
        self._terminated, self._truncated = np.zeros(count, bool), np.zeros(count, bool)
        self._flags = torch.from_numpy(self._terminated), torch.from_numpy(self._truncated)
        self._rewards = torch.from_numpy(self._reward)
        self._running = False

    @property
    def count(self) -> int:
        return len(self._envs)

    @property
    def spec(self) -> Spec:
        return self._spec

    def reset(self, seed: int) -> Obs:
        for number, single in enumerate(environment_seeds(seed, self.count)):
            self._begin(number, single)
        self._shorten(seed)
        self._running = True
        check_finite(self._rows.tensors, self._where)
        return self._rows.tensors

    def _shorten(self, seed: int) -> None:
        if self._longest:
            drawn = torch.randint(1, self._longest + 1, (self.count,), generator=stream(seed, "spread"))
            self._left[:] = drawn.numpy()
            self._shortened = set(range(self.count))

    def step(self, action: Tensor) -> Step:
        if not self._running:
            raise RunError(self._where, "stepped before it was reset")
        wishes = action_array(action, self._spec.action, self.count, self._where)
        self._terminated[:] = self._truncated[:] = False
        for column in self._columns.values():
            column.fill(np.nan)
        ended = [number for number, wish in enumerate(wishes) if self._advance(number, wish)]
        if not (np.isfinite(self._reward).all() and self._rows.finite()):
            check_finite(self._rows.tensors, self._where)
            check_reward(self._rewards, self.count, self._where)
        final_obs = self._rows.tensors
        if ended:
            self._finals.fill(self._rows, skipping=self._terminated | self._truncated)
            final_obs = self._finals.tensors
            check_finite(final_obs, self._where)
        return Step(self._rows.tensors, final_obs, self._rewards, *self._flags, self._valid, self._extras)

    def _advance(self, number: int, wish: Any) -> bool:
        """One environment's step; True where its episode ended, and another one has begun."""
        self._asked = number
        try:
            raw, reward, terminated, truncated, info = self._envs[number].step(wish)
        except Exception as error:
            raise self._failed(number, "in its step", error) from error
        if number in self._shortened:
            truncated = self._cut(number) or truncated
        self._reward[number] = reward
        if info:
            self._note(number, info)
        if not (terminated or truncated):
            self._rows.write(number, raw)
            return False
        self._terminated[number], self._truncated[number] = terminated, not terminated
        self._finals.write(number, raw)
        self._shortened.discard(number)
        self._left[number] = WHOLE
        self._begin(number, None)
        return True

    def _cut(self, number: int) -> bool:
        """Whether a shortened first episode is over."""
        self._left[number] -= 1
        return bool(self._left[number] == 0)

    def _begin(self, number: int, seed: int | None) -> None:
        self._asked = number
        try:
            raw, _ = self._envs[number].reset(seed=seed)
        except Exception as error:
            raise self._failed(number, "when it began an episode", error) from error
        self._rows.write(number, raw)

    def _failed(self, number: int, when: str, error: Exception) -> UnderstudyError:
        told = f"environment {number} failed {when} ({type(error).__name__}: {error})"
        return error if isinstance(error, UnderstudyError) else RunError(self._where, told)

    def _note(self, number: int, info: Mapping[str, Any]) -> None:
        if self._extra_names is None:
            self._extra_names = tuple(name for name in info if name.startswith(REWARD_TERMS) and _is_number(info[name]))
        for name in self._extra_names:
            if name not in self._columns:
                self._columns[name] = np.full(self.count, np.nan, np.float32)
                self._extras[name] = torch.from_numpy(self._columns[name])
            self._columns[name][number] = info.get(name, np.nan)

    def save(self) -> dict[str, Tensor]:
        """Where every simulator stands, [N, …] each; empty if these are not environments that can tell it."""
        if not (self._running and all(can_tell(env) for env in self._envs)):
            return {}
        each = [snapshot(env) for env in self._envs]
        saved = {f"simulator.{name}": torch.stack([one[name] for one in each]) for name in each[0]}
        saved |= {f"obs.{name}": values.clone() for name, values in self._rows.tensors.items()}
        return {**saved, "left": torch.from_numpy(self._left.copy())}

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        """Stand where `save` was called, also in another process; everything must fit."""
        if not self._running:
            self.reset(0)  # nothing of it stays, but simulators must have begun before they can be put anywhere
        here = self.save()
        told = {name: (values.shape, values.dtype) for name, values in saved.items()}
        if not here or told != {name: (values.shape, values.dtype) for name, values in here.items()}:
            raise CheckpointError(self._where, "these environments cannot be put where others stood")
        for number, env in enumerate(self._envs):
            parts = {name: saved[f"simulator.{name}"][number] for name in snapshot(env)}
            put_back(env, parts)
        for name, values in self._rows.tensors.items():
            values.copy_(saved[f"obs.{name}"])
        self._left[:] = saved["left"].numpy()
        self._shortened = {int(number) for number in np.flatnonzero(self._left != WHOLE)}
        self._running = True
        return self._rows.tensors

    def waiting(self) -> list[int]:
        """Who has not answered, while a call lasts."""
        return [self._asked]

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _time_limit(env: Env, name: str) -> int:
    longest = None if env.spec is None else env.spec.max_episode_steps
    if longest is None:
        raise ConfigError(
            f"environment '{name}'", "has no time limit to spread first episodes over", do="Switch spread off."
        )
    return int(longest)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number))
