"""What was earned from each row of a replay buffer on: known once the row's episode has ended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.discounting import discounted_sums
from understudy.core.state import Static
from understudy.data.replay_ring import NUMBERS, TERMINATED, TRUNCATED, VALID, Array, ReplayRing

COLUMN = "return_to_go"
UNKNOWN = torch.finfo(torch.float32).min
"""Of rows whose episode goes on, or was cut off by a lost environment: less than any return, and a number."""


@final
@dataclass
class RingReturns:
    """R = r + γ·R' to the end of the episode, truncated ones included, of the rewards that are learned from."""

    values: Tensor
    """[capacity]."""
    lengths: Tensor
    """Steps so far of the episode that each environment is in [N]."""
    gamma: Static[float]
    rewards: Static[Callable[[Tensor], Tensor]]

    @classmethod
    def of(cls, ring: ReplayRing, gamma: float, rewards: Callable[[Tensor], Tensor]) -> "RingReturns":
        """Of a ring that is still empty."""
        unknown, lengths = torch.full((ring.rows.capacity,), UNKNOWN), torch.zeros(ring.num_envs, dtype=torch.int64)
        return cls(unknown, lengths, gamma, rewards)

    def follow(self, ring: ReplayRing, flags: Array) -> None:
        """One step of all environments, which the ring has just taken in, ended as `flags` [N] say."""
        newest = (ring.rows.written - ring.num_envs) % ring.rows.capacity
        self.values[newest : newest + ring.num_envs] = UNKNOWN
        valid, ended = flags >= VALID, (flags & (TERMINATED | TRUNCATED)) > 0
        self.lengths.add_(1).mul_(torch.from_numpy(valid))
        for number in (valid & ended).nonzero()[0].tolist():
            self._end(ring, newest + number, int(self.lengths[number]))
            self.lengths[number] = 0

    def forget_unfinished(self) -> None:
        """All environments begin anew: what they would have earned nobody knows."""
        self.lengths.zero_()

    def _end(self, ring: ReplayRing, last: int, length: int) -> None:
        """The episode whose last row is `last` was so many steps long; the oldest of them may be gone."""
        steps = min(length, ring.rows.capacity // ring.num_envs)
        slots = (last - ring.num_envs * torch.arange(steps - 1, -1, -1)) % ring.rows.capacity
        raw = ring.rows.columns[NUMBERS][:, ring.layout.reward].index_select(0, slots)
        rewards = self.rewards(raw).double()
        self.values[slots] = discounted_sums(rewards, torch.full_like(rewards, self.gamma)).float()
