"""One buffer [N, …] per observation group, filled row by row with what single environments emit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import DTypeLike, NDArray

from understudy.core.batch import Obs
from understudy.core.errors import DataError
from understudy.core.spec import ACTION_MASK, Spec
from understudy.envs.gym import Keys, check_kept, group_name, one_hot
from understudy.envs.vector.contract import finite

Allocate = Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]
"""Makes an array of zeros."""


@dataclass(frozen=True)
class _Part:
    """Where a group stands in a raw observation, and where it goes."""

    name: str
    keys: Keys
    shape: tuple[int, ...]
    buffer: NDArray[Any]
    choices: bool
    """The environment says one of n, the group is a one-hot vector."""


@final
class ObservationRows:
    """Buffers for N environments; `tensors` are views of them."""

    def __init__(
        self, space: "gymnasium.Space[Any]", spec: Spec, count: int, where: str, allocate: Allocate = np.zeros
    ) -> None:
        self._where = where
        self._parts = [_part(keys, part, spec, count, allocate) for keys, part in _leaves(space, ())]
        self.tensors: Obs = {part.name: torch.from_numpy(part.buffer) for part in self._parts}

    def write(self, number: int, raw: Any) -> None:
        """The observation of one environment into its row, cast to the group's dtype; shapes must not change."""
        for part in self._parts:
            value = raw
            try:
                for key in part.keys:
                    value = value[key]
                if part.choices and np.ndim(value) == 0:
                    value = one_hot(value, *part.shape)
                elif type(value) is not np.ndarray:
                    value = np.asarray(value)
                if value.shape != part.shape:
                    raise self._misshapen(number, part, value.shape)
                if value.dtype is not part.buffer.dtype and part.name != ACTION_MASK:
                    check_kept(value, part.buffer.dtype)
                part.buffer[number] = value
            except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
                told = f"group '{part.name}' of environment {number} cannot be read ({type(error).__name__}: {error})"
                raise DataError(self._where, told) from error
            if part.name == ACTION_MASK and not np.array_equal(part.buffer[number], value):
                raise DataError(self._where, f"'{ACTION_MASK}' of environment {number} is not a mask", got=value)

    def _misshapen(self, number: int, part: _Part, got: tuple[int, ...]) -> DataError:
        told = f"group '{part.name}' of environment {number} has the wrong shape"
        return DataError(self._where, told, got=got, expected=part.shape)

    def finite(self) -> bool:
        """No NaN and no infinity anywhere."""
        return all(finite(part.buffer) for part in self._parts if part.buffer.dtype.kind == "f")

    def fill(self, other: "ObservationRows", *, skipping: NDArray[np.bool_]) -> None:
        """Take over the rows of another one except some [N]."""
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            kept = skipping.reshape(-1, *[1] * len(mine.shape))
            np.copyto(mine.buffer, theirs.buffer, where=~kept)


def _leaves(space: "gymnasium.Space[Any]", keys: Keys) -> Iterator[tuple[Keys, "gymnasium.Space[Any]"]]:
    if not isinstance(space, spaces.Dict):
        yield keys, space
        return
    for key, part in space.spaces.items():
        yield from _leaves(part, (*keys, key))


def _part(keys: Keys, space: "gymnasium.Space[Any]", spec: Spec, count: int, allocate: Allocate) -> _Part:
    name = group_name(keys)
    if name == ACTION_MASK and spec.masked:
        shape = tuple(space.shape or ())
        return _Part(name, keys, shape, allocate((count, *shape), bool), choices=False)
    group = spec.observation[name]
    buffer = allocate((count, *group.shape), group.dtype)
    return _Part(name, keys, group.shape, buffer, isinstance(space, spaces.Discrete))
