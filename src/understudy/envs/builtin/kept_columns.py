"""Environments that show less than they know: only some columns of an observation are kept.

`UnderstudyPendulumMasked-v0` shows where the pendulum is (cos θ, sin θ) and not how fast it turns,
`UnderstudyCartPoleMasked-v0` where cart and pole are. One look does not say which way anything moves: whoever
remembers the look before can tell, whoever does not must fail.
"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import gymnasium
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, did_you_mean
from understudy.envs.gym import Env

Columns = Sequence[int] | Mapping[str, Sequence[int]]
"""Numbers of the columns to keep, in this order; of an observation in groups, by the group's name."""


@final
class KeptColumns(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Groups that are not named are kept whole."""

    def __init__(self, env: Env, columns: Columns) -> None:
        super().__init__(env)
        self._named: dict[str, list[int]] = {}
        self._numbers: list[int] = []
        if isinstance(columns, Mapping):
            self._named = {name: list(numbers) for name, numbers in columns.items()}
        else:
            self._numbers = list(columns)
        self.observation_space = self._narrowed(env.observation_space)

    def _narrowed(self, space: "gymnasium.Space[Any]") -> "gymnasium.Space[Any]":
        if not self._named:
            return _narrow(space, self._numbers, "observation")
        if not isinstance(space, spaces.Dict):
            raise ConfigError("columns", "the observation has no groups", got=sorted(self._named), expected="numbers")
        for name in self._named:
            if name not in space.spaces:
                raise ConfigError("columns", f"no group '{name}'", do=did_you_mean(name, space.spaces))
        parts = {name: self._part(name, part) for name, part in space.spaces.items()}
        return spaces.Dict(parts)

    def _part(self, name: str, part: "gymnasium.Space[Any]") -> "gymnasium.Space[Any]":
        return _narrow(part, self._named[name], f"group '{name}'") if name in self._named else part

    def observation(self, observation: Any) -> Any:
        if not self._named:
            return observation[self._numbers]
        kept: dict[str, NDArray[Any]] = {name: observation[name][numbers] for name, numbers in self._named.items()}
        return {**observation, **kept}


def _narrow(space: "gymnasium.Space[Any]", numbers: list[int], where: str) -> spaces.Box:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError("columns", f"the {where} has none", got=space, expected="a vector")
    size = space.shape[0]
    wrong = [number for number in numbers if not 0 <= number < size]
    if wrong or not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(
            "columns", f"not columns of the {where}", got=numbers, expected=f"some of 0 to {size - 1}, each once"
        )
    return spaces.Box(space.low[numbers], space.high[numbers], dtype=space.dtype.type)


def keep_columns(env: str, columns: Columns, render_mode: str | None = None) -> KeptColumns:
    """A registered environment, without its time limit, that shows only these columns: for Gymnasium's registry."""
    return KeptColumns(gymnasium.make(env, disable_env_checker=True, render_mode=render_mode).unwrapped, columns)
