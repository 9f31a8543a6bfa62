"""Windows of a policy to learn from: those of this rollout, and some of the ones before.

A discriminator that only knows what the policy does now forgets what it did, and the policy goes round in circles.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.large_state import LargeState
from understudy.core.state import Static

WINDOW = "window"


@final
@dataclass
class WindowReplay:
    rings: tuple[LargeState, ...]
    """The newest windows of earlier rollouts: one ring, or none."""
    share: Static[float]
    """Of what is drawn, so much is from earlier rollouts once there are any."""
    keep: Static[float]
    """Share of a rollout's windows that is remembered."""
    rng: torch.Generator

    @classmethod
    def empty(
        cls, capacity: int, frames: int, size: int, *, share: float, keep: float, rng: torch.Generator
    ) -> "WindowReplay":
        row = {WINDOW: torch.empty(frames, size, device="cpu")}
        return cls((LargeState(row, capacity),) if capacity else (), share, keep, rng)

    def draw(self, fresh: Tensor, count: int) -> Tensor:
        """[count, n, F], from fresh windows [M, n, F] and remembered ones, each by itself."""
        filled = [ring for ring in self.rings if len(ring)]
        earlier = round(self.share * count) if filled else 0
        chosen = torch.randint(len(fresh), (count - earlier,), generator=self.rng)
        parts = [fresh.index_select(0, chosen.to(fresh.device))]
        for ring in filled if earlier else ():
            slots = torch.randint(len(ring), (earlier,), generator=self.rng)
            parts.append(ring.gather(slots)[WINDOW].to(fresh.device))
        return torch.cat(parts)

    def remember(self, fresh: Tensor) -> None:
        """Some of these, by chance, or all."""
        for ring in self.rings:
            count = min(max(1, round(self.keep * len(fresh))), ring.capacity)
            if count < len(fresh):
                fresh = fresh[torch.randperm(len(fresh), generator=self.rng)[:count].to(fresh.device)]
            ring.append({WINDOW: fresh.cpu()})
