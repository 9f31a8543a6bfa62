"""Environments that can begin in a state of a reference motion, and what a motion must tell for it.

- A world that says itself how (`Placeable`): the small ones of this library, and its humanoid.
- Gymnasium's classic control and MuJoCo environments of which an observation is the state (`POSES`): motions recorded
  in them have it as the channel `state`.
- Any other MuJoCo environment of Gymnasium's kind whose joints have names: from joint and root states, by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError
from understudy.envs.call_log import number_words
from understudy.envs.gym import Env
from understudy.envs.physics.joint_states import JointStates
from understudy.envs.physics.poses import POSES, Pose, silent_mujoco

Floats = NDArray[np.float64]
State = Mapping[str, Floats]
Sizes = Mapping[str, int | tuple[str, ...]]
"""Of every channel how many numbers it has, or what they are called where their order must be found by name."""
STATE = "state"
"""What recorded datasets call an observation without groups."""


@runtime_checkable
class Placeable(Protocol):
    """A world that can be put into a state of a motion."""

    @property
    def reference_channels(self) -> Sizes: ...

    def place(self, state: State) -> Any:
        """Stand there, in an episode that has just begun; gives the observation. A state that is none raises
        an `UnderstudyError`."""
        ...


@dataclass(frozen=True)
class Placement:
    """How one environment is put into states."""

    channels: Mapping[str, NDArray[np.intp]]
    """What is asked of motions, and which of its components, in the environment's order."""
    _put: Callable[[State], Any]
    _wrappers: tuple["gymnasium.ObservationWrapper[Any, Any, Any]", ...]

    def place(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """The first observation of an episode that begins in a state, whose channels are as motions have them."""
        chosen = {name: np.asarray(state[name], np.float64)[order] for name, order in self.channels.items()}
        seen = self._put(chosen)
        for wrapper in self._wrappers:
            seen = wrapper.observation(seen)
        return seen


def find_placement(env: Env, told: Mapping[str, tuple[str, ...]], where: str) -> Placement:
    """How this environment is put into states of motions that tell these channels, or a sentence on why it cannot."""
    sizes, put = _placing(env.unwrapped, env.spec.id if env.spec is not None else "", told, where)
    return Placement(
        {name: component_order(name, size, told, where) for name, size in sizes.items()}, put, _lookers(env, where)
    )


def _placing(
    inner: Any, name: str, told: Mapping[str, tuple[str, ...]], where: str
) -> tuple[Sizes, Callable[[State], Any]]:
    if isinstance(inner, Placeable):
        return inner.reference_channels, inner.place
    if name in POSES and STATE in told:
        pose = POSES[name]
        width = max(pose.columns, len(told[STATE]))  # columns after those of the state are not read
        return {STATE: width}, lambda state: _put_observed(inner, pose, state[STATE], where)
    if {"model", "data"} <= vars(inner).keys() and "set_state" in dir(inner):
        joints = JointStates(inner.model)
        if joints.whole:
            return joints.channels, lambda state: _put_joints(inner, joints, state)
    raise ConfigError(
        where,
        f"{type(inner).__name__} cannot be put into a state of a motion"
        + (f" that does not tell its '{STATE}'" if name in POSES else ""),
        got=f"motions with {', '.join(told)}",
        do="Begin where it begins itself: env.tracking.reference_start=0; or give it reference_channels and place().",
    )


def _put_observed(inner: Any, pose: Pose, row: Floats, where: str) -> Any:
    observation = row[: pose.columns]
    if not pose.is_whole(observation[None])[0]:
        raise DataError(where, "an observation that hides part of the state", got=number_words(observation))
    with pose.quietly():
        pose.put(inner, observation)
        if pose.unhealthy and not inner.is_healthy:
            raise DataError(where, "a state in which the episode is over", got=number_words(observation))
        return pose.shown(inner)


def _put_joints(inner: Any, joints: JointStates, state: State) -> Any:
    import mujoco  # type: ignore[import-untyped]

    with silent_mujoco():
        mujoco.mj_resetData(inner.model, inner.data)
        inner.set_state(*joints.write(state))
        return inner._get_obs()


def component_order(
    channel: str, size: int | tuple[str, ...], told: Mapping[str, tuple[str, ...]], where: str
) -> NDArray[np.intp]:
    """Which components of a channel are meant, in order; what is missing or too much is told by name."""
    if channel not in told:
        known = ", ".join(told)
        raise ConfigError(where, f"motions have no channel '{channel}', which the environment begins from", got=known)
    there = told[channel]
    if isinstance(size, int):
        if len(there) != size:
            raise ConfigError(where, f"channel '{channel}' has another size", got=_listed(there), expected=size)
        return np.arange(size)
    if missing := [name for name in size if name not in there]:
        raise ConfigError(
            where,
            f"channel '{channel}' of the motions lacks {_listed(missing)}",
            got=_listed(there),
            do="Map them: motions.joints={name here: name in the clip}.",
        )
    return np.array([there.index(name) for name in size], np.intp)


def _listed(names: "tuple[str, ...] | list[str]") -> str:
    return f"{len(names)} ({', '.join(names)})"


def _lookers(env: Env, where: str) -> tuple["gymnasium.ObservationWrapper[Any, Any, Any]", ...]:
    """Wrappers that an observation goes through on its way out; whoever does more than look is refused."""
    found: list[gymnasium.ObservationWrapper[Any, Any, Any]] = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.ObservationWrapper):
            found.insert(0, env)
        elif not isinstance(env, (OrderEnforcing, PassiveEnvChecker, TimeLimit)):
            raise ConfigError(where, f"begins inside a wrapper that would not know of it: {type(env).__name__}")
        env = env.env
    return tuple(found)
