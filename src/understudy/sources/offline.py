"""Batches drawn uniformly, with replacement, from a fixed dataset.

Rows are gathered several batches at a time: one gather of 4,096 rows costs little more than one of 256. Block b is
drawn from a stream of its own, so the sampler's whole state is the number of batches it has handed out.
"""

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Obs, Transitions
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
    device: Static[torch.device]
    drawn: int = 0
    """Batches handed out so far."""
    gathered: Static[dict[int, list[Transitions]]] = field(default_factory=dict)
    """The current block by number; drawn again whenever another one is due."""

    @classmethod
    def build(
        cls, dataset: Dataset, demand: Demand, batch_size: int, seed: int, device: torch.device
    ) -> "OfflineSource":
        return cls(dataset.to(device), demand, batch_size, seed, device)

    def next(self, policy: Policy) -> Transitions:
        """The next batch; what is offline does not depend on who is learning."""
        block, place = divmod(self.drawn, self._batches_per_block())
        if block not in self.gathered:
            self.gathered = {block: self._gather(block)}
        self.drawn += 1
        return self.gathered[block][place]

    def _batches_per_block(self) -> int:
        return max(1, min(BLOCK_BATCHES, BLOCK_BYTES // (self.batch_size * self.dataset.row_bytes)))

    def _gather(self, block: int) -> list[Transitions]:
        rows = self._batches_per_block() * self.batch_size
        index = torch.randint(self.dataset.steps, (rows,), generator=stream(self.seed, f"sample/{block}"))
        batch = self.dataset.rows(index.to(self.device), self.demand)
        extra = dict(batch.extra)
        if "next_action" in extra:
            extra["next_action"] = self._normalise(extra["next_action"])
        columns = [self._normalise(batch.action), batch.reward, batch.terminated]
        parts = zip(
            _split_groups(batch.obs, self.batch_size),
            _split_groups(batch.next_obs, self.batch_size),
            _split_groups(extra, self.batch_size) if extra else [{}] * self._batches_per_block(),
            *(torch.split(column, self.batch_size) for column in columns),
            strict=True,
        )
        return [
            Transitions(obs, action, reward, next_obs, terminated, more)
            for obs, next_obs, more, action, reward, terminated in parts
        ]

    def _normalise(self, action: Tensor) -> Tensor:
        """Environment units to [-1, 1]."""
        box = self.dataset.spec.action
        centre = torch.as_tensor(box.centre, dtype=torch.float32, device=self.device)
        scale = torch.as_tensor(1.0 / box.half_range, dtype=torch.float32, device=self.device)
        return (action - centre) * scale


def _split_groups(groups: Obs, rows: int) -> list[Obs]:
    """One dict of long columns as many dicts of short ones."""
    pieces = {name: torch.split(column, rows) for name, column in groups.items()}
    return [dict(zip(pieces, parts, strict=True)) for parts in zip(*pieces.values(), strict=True)]
