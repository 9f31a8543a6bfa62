"""Batches drawn uniformly, with replacement, from a fixed dataset.

Rows are gathered several batches at a time: one gather of 4,096 rows costs little more than one of 256. Block b is
drawn from a stream of its own, so the sampler's whole state is the number of batches it has handed out.
"""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.protocols import Demand, Policy
from understudy.core.rng import stream
from understudy.core.state import Static
from understudy.data.dataset import Dataset

BLOCK_BATCHES = 16
BLOCK_BYTES = 8 << 20
"""Large observations (images) are gathered in smaller blocks."""


@final
@dataclass
class OfflineSource:
    dataset: Static[Dataset]
    demand: Static[Demand]
    batch_size: Static[int]
    seed: Static[int]
    action_centre: Static[Tensor]
    action_scale: Static[Tensor]
    block_batches: Static[int]
    """Batches gathered at once."""
    drawn: int = 0
    """Batches handed out so far."""
    block: Static[tuple[int, list[Transitions]]] = (-1, [])
    """The current block and its number; gathered again whenever another one is due."""

    @classmethod
    def build(
        cls, dataset: Dataset, demand: Demand, batch_size: int, seed: int, device: torch.device
    ) -> "OfflineSource":
        box = dataset.spec.action
        centre = torch.as_tensor(box.centre, dtype=torch.float32, device=device)
        scale = torch.as_tensor(1.0 / box.half_range, dtype=torch.float32, device=device)
        batches = max(1, min(BLOCK_BATCHES, BLOCK_BYTES // (batch_size * dataset.row_bytes)))
        return cls(dataset.to(device), demand, batch_size, seed, centre, scale, batches)

    def next(self, policy: Policy) -> Transitions:
        """The next batch; what is offline does not depend on who is learning."""
        number, place = divmod(self.drawn, self.block_batches)
        if self.block[0] != number:
            self.block = (number, self._gather(number))
        self.drawn += 1
        return self.block[1][place]

    def _gather(self, number: int) -> list[Transitions]:
        rng = stream(self.seed, f"sample/{number}")
        index = torch.randint(self.dataset.steps, (self.block_batches * self.batch_size,), generator=rng)
        rows = self.dataset.rows(index.to(self.action_centre.device), self.demand)
        extra = dict(rows.extra)
        if "next_action" in extra:
            extra["next_action"] = self._normalise(extra["next_action"])
        return replace(rows, action=self._normalise(rows.action), extra=extra).split(self.batch_size)

    def _normalise(self, action: Tensor) -> Tensor:
        """Environment units to [-1, 1]."""
        return (action - self.action_centre) * self.action_scale
