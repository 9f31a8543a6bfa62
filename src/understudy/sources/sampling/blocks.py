"""Batches a block at a time: one gather of 4,096 rows costs little more than one of 256.

Block b is drawn from a stream of its own, so a sampler's whole state is the number of batches it has handed out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from understudy.core.batch import Sequences, Transitions
from understudy.core.state import Static

Batch = TypeVar("Batch", Transitions, Sequences)
BLOCK_BATCHES = 16
BLOCK_BYTES = 8 << 20
"""Large observations (images) are gathered in smaller blocks."""


@final
@dataclass
class BlockSampler(Generic[Batch]):
    gather: Static[Callable[[int], list[Batch]]]
    """Block number → its batches, the same whenever it is asked for."""
    block_batches: Static[int]
    drawn: int = 0
    """Batches handed out so far."""
    block: Static[tuple[int, list[Batch]]] = (-1, [])
    """The current block and its number; gathered again whenever another one is due."""

    def next(self) -> Batch:
        number, place = divmod(self.drawn, self.block_batches)
        if self.block[0] != number:
            self.block = (number, self.gather(number))
        self.drawn += 1
        return self.block[1][place]


def batches_at_once(batch_bytes: int) -> int:
    """How many batches of this size make a block."""
    return max(1, min(BLOCK_BATCHES, BLOCK_BYTES // batch_bytes))
