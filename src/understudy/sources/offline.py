"""Batches drawn uniformly, with replacement, from a fixed dataset."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.protocols import Demand, Policy
from understudy.core.rng import stream
from understudy.core.state import Static
from understudy.data.dataset import Dataset


@final
@dataclass
class OfflineSource:
    dataset: Static[Dataset]
    demand: Static[Demand]
    batch_size: Static[int]
    action_centre: Static[Tensor]
    action_scale: Static[Tensor]
    rng: torch.Generator

    @classmethod
    def build(
        cls, dataset: Dataset, demand: Demand, batch_size: int, seed: int, device: torch.device
    ) -> "OfflineSource":
        box = dataset.spec.action
        centre = torch.as_tensor(box.centre, dtype=torch.float32, device=device)
        scale = torch.as_tensor(1.0 / box.half_range, dtype=torch.float32, device=device)
        return cls(dataset.to(device), demand, batch_size, centre, scale, stream(seed, "sample"))

    def next(self, policy: Policy) -> Transitions:
        """The next batch; what is offline does not depend on who is learning."""
        index = torch.randint(self.dataset.steps, (self.batch_size,), generator=self.rng)
        batch = self.dataset.rows(index.to(self.action_centre.device), self.demand)
        extra = dict(batch.extra)
        if "next_action" in extra:
            extra["next_action"] = self._normalise(extra["next_action"])
        return replace(batch, action=self._normalise(batch.action), extra=extra)

    def _normalise(self, action: Tensor) -> Tensor:
        """Environment units to [-1, 1]."""
        return (action - self.action_centre) * self.action_scale
