"""What N environments write their step into, and the step that is read off it: one buffer [N, …] for each fact."""

import math
import mmap
from collections.abc import Mapping, Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from understudy.core.errors import DataError
from understudy.core.spec import Spec
from understudy.envs.call_log import CallLog
from understudy.envs.vector.contract import REWARD_TERMS, Block, Step, check_finite, check_reward, finite
from understudy.envs.vector.observation_rows import Allocate, ObservationRows

WHOLE = -1
"""Steps left in a first episode that is not shortened."""
NOBODY = -1
UNSEEDED = -1
"""An episode goes on with the random numbers of the one before."""
MOST_TERMS = 256


def shared_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array that processes forked later write into, too. It has no name, and is gone with the last of them."""
    size = math.prod(shape)
    memory = mmap.mmap(-1, max(1, size * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype, size).reshape(shape)


@final
class RewardTerms:
    """Numbers [N] that environments tell of a step, by name; NaN where one told none."""

    def __init__(self, count: int, where: str, names: Sequence[str] | None, allocate: Allocate) -> None:
        self._where = where
        self._room: NDArray[np.float32] = allocate((MOST_TERMS, count), np.float32)
        self._table = self._room[:0]
        self._columns: list[tuple[str, NDArray[np.float32]]] = []
        self.block = Block((), torch.empty(0, count))
        self.names: tuple[str, ...] | None = None
        """None until an environment has told anything."""
        if names is not None:
            self.choose(names)

    def choose(self, names: Sequence[str]) -> None:
        if len(names) > MOST_TERMS:
            raise DataError(self._where, "too many reward terms", got=len(names), expected=f"at most {MOST_TERMS}")
        self.names, self._table = tuple(names), self._room[: len(names)]
        self._columns = list(zip(names, self._table, strict=True))
        self.block = Block(self.names, torch.from_numpy(self._table))

    def clear(self) -> None:
        self._table.fill(np.nan)

    def note(self, number: int, info: Mapping[str, Any]) -> None:
        for name, column in self._columns:
            try:
                column[number] = info.get(name, np.nan)
            except (TypeError, ValueError, OverflowError):  # no number this time
                column[number] = np.nan


def term_names(info: Mapping[str, Any]) -> tuple[str, ...]:
    """What is kept of an `info` unless somebody asks for something else."""
    return tuple(
        name for name in info if isinstance(name, str) and name.startswith(REWARD_TERMS) and _is_number(info[name])
    )


@final
class StepBuffers:
    """Buffers of N environments; `shares` groups of them write at the same time, each its own rows."""

    def __init__(
        self,
        space: "gymnasium.Space[Any]",
        spec: Spec,
        count: int,
        where: str,
        *,
        extras: Sequence[str] | None = None,
        shares: int = 1,
        allocate: Allocate = np.zeros,
    ) -> None:
        self.where, self.count = where, count
        self.log = CallLog(count)
        """Of the process that asks; the others only write."""
        self.rows = ObservationRows(space, spec, count, where, allocate)
        self.finals = ObservationRows(space, spec, count, where, allocate)
        self.terms = RewardTerms(count, where, extras, allocate)
        self.reward: NDArray[np.float32] = allocate((count,), np.float32)
        self.terminated: NDArray[np.bool_] = allocate((count,), bool)
        self.truncated: NDArray[np.bool_] = allocate((count,), bool)
        self.left: NDArray[np.int64] = allocate((count,), np.int64)
        """Steps left in first episodes that are shortened."""
        self.asked: NDArray[np.int64] = allocate((shares,), np.int64)
        """Of every share the environment whose answer is waited for."""
        self.seeds: NDArray[np.int64] = allocate((count,), np.int64)
        """Of the episodes that begin next."""
        self.left[:], self.asked[:], self.seeds[:] = WHOLE, NOBODY, UNSEEDED
        self._valid = torch.ones(count, dtype=torch.bool)
        self._rewards = torch.from_numpy(self.reward)
        self._flags = torch.from_numpy(self.terminated), torch.from_numpy(self.truncated)

    def clear(self, actions: NDArray[Any]) -> None:
        """Before a step with these actions [N, …]."""
        self.log.advance(actions)
        self.terminated[:] = self.truncated[:] = False
        self.terms.clear()

    def next_seeds(self) -> list[int] | None:
        """Of the episodes that begin next, where somebody gave them seeds of their own."""
        return None if self.seeds[0] == UNSEEDED else self.seeds.tolist()

    def step(self) -> Step:
        """What was written, once all of it is found to be numbers."""
        if not (finite(self.reward) and self.rows.finite()):
            check_finite(self.rows.tensors, self.where, self.log)
            check_reward(self._rewards, self.count, self.where, self.log)
        final_obs = self.rows.tensors
        if True in self.terminated.tobytes() or True in self.truncated.tobytes():  # a tenth of the time of any()
            ended = self.terminated | self.truncated
            self.finals.fill(self.rows, skipping=ended)
            final_obs = self.finals.tensors
            check_finite(final_obs, self.where, self.log)
            self.log.end(ended, self.next_seeds())
        return Step(self.rows.tensors, final_obs, self._rewards, *self._flags, self._valid, self.terms.block)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number))
