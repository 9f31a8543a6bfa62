"""The aggregate: demonstrations, if there are any, and every labelled row of the rounds that are kept.

Round 0 are the demonstrations, own rounds count from 1. Rows are only ever added; a row is drawn as often as any other,
whatever round it is of. Which rows a batch has is a function of the seed, of the round and of the batch's number, so
what is drawn needs no state; of demonstrations alone, or of the first round alone, it is what `offline` or `sequences`
draw of so many rows, to the bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import torch
from torch import Tensor

from understudy.core.batch import Sequences, Transitions
from understudy.core.spec import ActionSpace, Box, Group
from understudy.core.state import Static
from understudy.data.replay_ring import ReplayRing
from understudy.sources.sampling.draws import uniform_rows

Batch = TypeVar("Batch", Transitions, Sequences)
ROUND, TEACHER_ACTED, EXECUTED_ACTION = "round", "teacher_acted", "executed_action"


def row_facts(space: ActionSpace) -> dict[str, Group]:
    """What is kept of a step beside its label: its round, who acted, and what was done."""
    executed = Group((space.size,), "float32") if isinstance(space, Box) else Group((), "int64")
    return {ROUND: Group((), "int32"), TEACHER_ACTED: Group((), "bool"), EXECUTED_ACTION: executed}


@final
@dataclass(frozen=True)
class Gathering(Generic[Batch]):
    """How rows become batches."""

    demonstrations: int
    """Rows that demonstrations can begin with; 0 where there are none."""
    of_data: Callable[[Tensor], Batch]
    """Rows of demonstrations by number [B]."""
    of_ring: Callable[[Tensor], Batch]
    """Own rows by slot [B]."""
    joined: Callable[[Sequence[Batch]], Batch]
    batch_size: int


@final
@dataclass
class Aggregate(Generic[Batch]):
    ring: ReplayRing
    gathering: Static[Gathering[Batch]]
    starts: Tensor
    """With which row each of the kept rounds began [K], of round r at (r − 1) mod K; empty where all are kept."""

    def begin_round(self, number: int) -> None:
        """Rows that are added from now on are of this round."""
        if len(self.starts):
            self.starts[(number - 1) % len(self.starts)] = self.ring.rows.written

    def oldest(self, number: int) -> int:
        """The number of the first row that is drawn after so many rounds."""
        kept = len(self.starts)
        first = int(self.starts[number % kept]) if kept and number >= kept else 0
        return max(first, self.ring.rows.written - self.ring.rows.capacity)

    def batches(self, number: int, count: int, rng: torch.Generator) -> list[Batch]:
        """So many batches that follow the round of this number."""
        gathering = self.gathering
        index = self._index(count * gathering.batch_size, number, rng)
        if not number:
            return gathering.of_data(index).split(gathering.batch_size)
        if not gathering.demonstrations:
            return gathering.of_ring(self._slots(index, number)).split(gathering.batch_size)
        return [self._mixed(part, number) for part in torch.split(index, gathering.batch_size)]

    def _index(self, size: int, number: int, rng: torch.Generator) -> Tensor:
        """Rows [size], those of demonstrations first and own ones behind them; barriers are never among them."""
        own = self.ring.rows.written - self.oldest(number) if number else 0
        index = uniform_rows(size, self.gathering.demonstrations + own, rng)
        while self.ring.barriers and own and bool((wrong := self._barriers(index, number)).any()):
            index[wrong] = uniform_rows(int(wrong.sum()), self.gathering.demonstrations + own, rng)
        return index

    def _barriers(self, index: Tensor, number: int) -> Tensor:
        own = index >= self.gathering.demonstrations
        return own & ~self.ring.valid(self._slots(index.clamp(min=self.gathering.demonstrations), number))

    def _slots(self, index: Tensor, number: int) -> Tensor:
        return (self.oldest(number) + index - self.gathering.demonstrations) % self.ring.rows.capacity

    def _mixed(self, index: Tensor, number: int) -> Batch:
        """One batch, rows of demonstrations first."""
        own = index >= self.gathering.demonstrations
        parts = []
        if bool((~own).any()):
            parts.append(self.gathering.of_data(index[~own]))
        if bool(own.any()):
            parts.append(self.gathering.of_ring(self._slots(index[own], number)))
        return self.gathering.joined(parts)
