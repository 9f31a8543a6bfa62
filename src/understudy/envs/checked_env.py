"""One environment that gives what Gymnasium says it gives, or an error that names it and what it gave instead."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, final

import numpy as np

from understudy.core.errors import RunError
from understudy.core.spec import ACTION_MASK
from understudy.envs.failures import describe_exception, interrupts, raise_failure
from understudy.envs.gym import Env

Outcome = tuple[Any, float, bool, bool, Mapping[str, Any]]
"""Observation, reward, terminated, truncated, info."""
FLOATS = frozenset({float, np.float64, np.float32})
FLAGS = frozenset({bool, np.bool_})
"""What is given nearly always: whatever else is looked at more closely."""
SHOWN = 80


def make_checked(make: Callable[[str], Env], name: str, where: str, label: str) -> "CheckedEnv":
    """An environment of the caller's making; what it raises there is told as well."""
    try:
        env = make(name)
    except BaseException as error:
        raise_failure(where, f"{label} could not be made", error)
    return CheckedEnv(env, where, label)


@final
class CheckedEnv:
    """`label` is what errors call it: one of many environments, or an episode that is played in it."""

    def __init__(self, env: Env, where: str, label: str = "it") -> None:
        self.env, self.where, self.label = env, where, label

    def reset(self, seed: int | None = None) -> Any:
        """The first observation of an episode."""
        try:
            answer = self.env.reset(seed=seed)
        except BaseException as error:
            raise_failure(self.where, f"{self.label} failed when it began an episode", error, self.env)
        if not isinstance(answer, (tuple, list)) or len(answer) != 2 or not isinstance(answer[1], Mapping):
            self._refuse("does not give what a reset gives", answer, "an observation and an info")
        if ACTION_MASK in answer[1] or "action_masks" in dir(self.env.unwrapped):
            self._tell_of_masks()
        return answer[0]

    def step(self, action: Any) -> Outcome:
        try:
            answer = self.env.step(action)
        except BaseException as error:
            raise_failure(self.where, f"{self.label} failed in its step", error, self.env)
        if not isinstance(answer, (tuple, list)) or len(answer) != 5:
            self._refuse(
                "does not give what a step gives", answer, "observation, reward, terminated, truncated and info"
            )
        raw, reward, terminated, truncated, info = answer
        if type(reward) in FLOATS and type(terminated) in FLAGS and type(truncated) in FLAGS and type(info) is dict:
            return answer  # type: ignore[return-value]
        flags = self._flag(terminated, "terminated"), self._flag(truncated, "truncated")
        if not isinstance(info, Mapping):
            raise self._wrong(f"the info of {self.label} is none", info, "a dictionary")
        return raw, self._number(reward), *flags, info

    def _tell_of_masks(self) -> None:
        """Of legal actions only the observation tells."""
        space = self.env.observation_space
        if not isinstance(space, Mapping) or ACTION_MASK not in tuple(space):  # `in space` asks for observations
            told = "which actions are legal is not heeded where info or action_masks() says it"
            do = f"Make it a part of the observation, '{ACTION_MASK}': docs/worlds.md#masks."
            warnings.warn(f"{self.where}: {told}. {do}", stacklevel=2)

    def _number(self, reward: Any) -> float:
        values = _plain(reward)
        if values is None or values.ndim or values.dtype.kind not in "fiub":
            raise self._wrong(f"the reward of {self.label} is not a number", reward, "one real number")
        return float(values)

    def _flag(self, flag: Any, name: str) -> bool:
        values = _plain(flag)
        if values is None or values.ndim or values.dtype.kind not in "fiub" or values not in (0, 1):
            raise self._wrong(f"'{name}' of {self.label} is not a flag", flag, "True or False")
        return bool(values)

    def _refuse(self, what: str, answer: Any, expected: str) -> NoReturn:
        count = f"{len(answer)} things" if isinstance(answer, (tuple, list)) else type(answer).__name__
        raise RunError(self.where, f"{self.label} {what}", got=f"{count}, {_shown(answer)}", expected=expected)

    def _wrong(self, what: str, given: Any, expected: str) -> RunError:
        return RunError(self.where, what, got=f"{_shown(given)} ({type(given).__name__})", expected=expected)

    def close(self) -> None:
        """What fails here has done its work: it is said, and nobody is stopped by it."""
        try:
            self.env.close()
        except BaseException as error:
            if interrupts(error):
                raise
            told = f"{self.label} failed when it was closed ({describe_exception(error, self.env)})"
            warnings.warn(f"{self.where}: {told}", stacklevel=2)


def _plain(value: Any) -> "np.ndarray[Any, np.dtype[Any]] | None":
    """As an array; None for what cannot be one."""
    try:
        return np.asarray(value)
    except Exception:
        return None


def _shown(value: Any) -> str:
    try:
        words = " ".join(repr(value).split())
    except Exception:
        words = "something that cannot be shown"
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
