"""Batches drawn from a fixed dataset: uniformly, by weight, or every row once per epoch.

Rows are gathered several batches at a time: one gather of 4,096 rows costs little more than one of 256. Block b is
drawn from a stream of its own, so the sampler's whole state is the number of batches it has handed out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch

from understudy.core.batch import Transitions
from understudy.core.protocols import Demand, Policy
from understudy.core.state import Static
from understudy.data.dataset import Dataset
from understudy.sources.draws import Draw, choose_draw
from understudy.sources.policy_space import into_policy_space

BLOCK_BATCHES = 16
BLOCK_BYTES = 8 << 20
"""Large observations (images) are gathered in smaller blocks."""


@final
@dataclass
class OfflineSource:
    dataset: Static[Dataset]
    demand: Static[Demand]
    batch_size: Static[int]
    device: Static[torch.device]
    draw: Static[Draw]
    into_policy_space: Static[Callable[[Transitions], Transitions]]
    block_batches: Static[int]
    """Batches gathered at once."""
    drawn: int = 0
    """Batches handed out so far."""
    block: Static[tuple[int, list[Transitions]]] = (-1, [])
    """The current block and its number; gathered again whenever another one is due."""

    @classmethod
    def build(
        cls,
        dataset: Dataset,
        demand: Demand,
        batch_size: int,
        seed: int,
        device: torch.device,
        *,
        weights: str = "",
        replacement: bool = True,
    ) -> "OfflineSource":
        """`weights` names a further column of the dataset: its rows are then drawn in proportion to it."""
        batches = batches_at_once(batch_size * dataset.row_bytes)
        draw = choose_draw(dataset, batches * batch_size, seed, weights=weights, replacement=replacement)
        convert = into_policy_space(dataset.spec.action, device)
        return cls(dataset.to(device), demand, batch_size, device, draw, convert, batches)

    def next(self, policy: Policy) -> Transitions:
        """The next batch; what is offline does not depend on who is learning."""
        number, place = divmod(self.drawn, self.block_batches)
        if self.block[0] != number:
            self.block = (number, self._gather(number))
        self.drawn += 1
        return self.block[1][place]

    def _gather(self, number: int) -> list[Transitions]:
        rows = self.dataset.rows(self.draw.indices(number).to(self.device), self.demand)
        return self.into_policy_space(rows).split(self.batch_size)


def batches_at_once(batch_bytes: int) -> int:
    """How many batches of this size make a block."""
    return max(1, min(BLOCK_BATCHES, BLOCK_BYTES // batch_bytes))
