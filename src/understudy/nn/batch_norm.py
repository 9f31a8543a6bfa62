"""Batch normalisation of images whose statistics stand still, as those of observations do.

In reinforcement learning a policy's numbers must not depend on who else is in the batch: a rollout of 16, an evaluation
of 1 and a minibatch of 4,096 would be three policies, and the first ratio would not be 1. So one formula is used
everywhere, while learning, playing, evaluating and in exported files,

    y = γ·(x − μ)/√(σ² + ε) + β

with μ and σ² of each channel over rollouts that were learned from before. They change in `update` alone, once after
each rollout, by an exponential average: weights move, so what was seen long ago counts less and less. They are buffers:
checkpoints, policy files and warm starts hold them.
"""

from dataclasses import dataclass
from typing import Self, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy.nn.normalization import merge_moments

EPSILON = 1e-5
"""As torch's."""


@final
@dataclass
class RunningMoments:
    """Count, mean [C] and variance [C] of all that was taken, in float64, merged by Chan's rule."""

    count: float
    mean: Tensor
    variance: Tensor

    @classmethod
    def zeros(cls, like: Tensor) -> Self:
        blank = torch.zeros_like(like, dtype=torch.float64)
        return cls(0.0, blank, blank.clone())

    def take(self, pixels: Tensor) -> None:
        """Images [B, C, H, W]; each pixel counts once."""
        new = float(pixels.numel() // pixels.shape[1])
        if not new:
            return
        variance, mean = torch.var_mean(pixels.double(), dim=(0, 2, 3), correction=0)
        self.count += new
        merge_moments(self.mean, self.variance, mean, variance, new / self.count)


class BatchNorm(nn.Module):
    """[B, C, H, W] → the same, each channel normalised by statistics that only `update` changes."""

    rollouts: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("rollouts", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, pixels: Tensor) -> Tensor:
        return F.batch_norm(pixels, self.mean, self.variance, self.weight, self.bias, training=False, eps=EPSILON)

    @torch.no_grad()
    def update(self, seen: RunningMoments) -> None:
        """Take in what one rollout gave; nothing where it gave nothing."""
        if not seen.count:
            return
        share = torch.where(self.rollouts > 0, self.momentum, 1.0)
        self.mean += share * (seen.mean.to(self.mean) - self.mean)
        self.variance += share * (seen.variance.to(self.variance) - self.variance)
        self.rollouts += 1
