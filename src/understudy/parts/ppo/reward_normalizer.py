"""Rewards in units of how much returns differ, as Gymnasium's NormalizeReward and Stable-Baselines3's VecNormalize do.

    R = r + γ·R, from 0 in every episode                            → losses.returns.running_returns
    r ← r/√(Var R + 1e-8), cut to ±10

Var is over all that was ever seen, this rollout included. Both peers divide each step by what is known at it; here a
rollout has one divisor, so that its advantages are of one unit. Nothing is subtracted: that would change what is best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.batch import Rollout
from understudy.losses.returns import running_returns
from understudy.nn.normalization import Normalizer, OnPolicyNormalizerSettings

LARGEST_REWARD = 10.0


@final
@dataclass
class RewardNormalizer:
    statistics: Normalizer
    """Of R."""
    paid: Tensor
    """R of the running episodes [N], in double precision."""

    @classmethod
    def build(cls, count: int, device: torch.device) -> "RewardNormalizer":
        statistics = Normalizer((), OnPolicyNormalizerSettings()).to(device)
        return cls(statistics, torch.zeros(count, dtype=torch.float64, device=device))

    @torch.no_grad()
    def normalize(self, rollout: Rollout, gamma: float) -> Tensor:
        """A rollout's rewards [T, N], after it was taken into the statistics."""
        reward = rollout.reward.double().masked_fill(~rollout.valid, 0.0)
        before = torch.zeros_like(self.paid) if rollout.anew else self.paid
        returns = running_returns(reward, rollout.resets, before, gamma)
        self.paid.copy_(returns[-1].masked_fill(rollout.ended[-1] | ~rollout.valid[-1], 0.0))
        self.statistics.update(returns, rollout.valid)
        return (rollout.reward * self.statistics.scale).clamp(-LARGEST_REWARD, LARGEST_REWARD)


def reward_statistics(some: Sequence[RewardNormalizer]) -> dict[str, nn.Module]:
    """By role, where there are any: values that are handed on are in units of these."""
    return {"rewards": some[0].statistics} if some else {}
