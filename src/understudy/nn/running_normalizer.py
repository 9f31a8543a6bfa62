"""Normalisation by what has been seen so far, as buffers: saved with the policy, applied wherever it acts.

Statistics change in `update` and nowhere else. A learner calls it once, after it has learned from a rollout; until then
every pass over that rollout sees the numbers the rollout was made with, and the first ratio of policies is 1.
"""

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.settings import Settings


class NormalizerSettings(Settings):
    """(s − μ)/√(σ² + ε), with μ and σ² of all that was seen."""

    epsilon: float = Field(1e-8, gt=0)
    """ε: added to the variance, so that a column that never changed gives 0."""
    clip: float | None = Field(10.0, gt=0)
    """What is normalised is cut to ±clip; null is no limit."""
    until: int | None = Field(None, gt=0)
    """Statistics rest once this many rows were seen; null is never."""


class RunningNormalizer(nn.Module):
    """[..., *shape] → the same, normalised in float32. Before the first `update` μ is 0 and σ² is 1.

    Mean, variance and count are float64, merged by Chan's rule: many small updates equal one of all rows.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...], settings: NormalizerSettings) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.full(shape, 1.0 / math.sqrt(1.0 + settings.epsilon)))

    def forward(self, values: Tensor) -> Tensor:
        normal = (values.float() - self.shift).mul_(self.scale)
        clip = self.settings.clip
        return normal if clip is None else normal.clamp_(-clip, clip)

    def inverse(self, normal: Tensor) -> Tensor:
        """The raw values [..., *shape] of normalised ones, where none was cut."""
        return normal / self.scale + self.shift

    @torch.no_grad()
    def update(self, values: Tensor, mask: Tensor | None = None) -> None:
        """Take in values [..., *shape]; where `mask` [...] is False a row does not count, whatever is in it."""
        rows = values.reshape(-1, *self.mean.shape).double()
        counts = torch.ones(len(rows), device=rows.device) if mask is None else mask.reshape(-1)
        self._merge(rows, counts.bool())

    def _merge(self, rows: Tensor, counts: Tensor) -> None:
        """Chan's parallel rule: moments of the union from the moments of both parts."""
        counted = counts.view(-1, *[1] * self.mean.dim())
        new = counts.sum().double()
        if self.settings.until is not None:
            new = torch.where(self.count < self.settings.until, new, 0.0)
        total = (self.count + new).clamp_min(1.0)
        size = counts.sum().clamp_min(1)
        mean = torch.where(counted, rows, 0.0).sum(0) / size
        variance = torch.where(counted, rows - mean, 0.0).square().sum(0) / size
        share, apart = new / total, mean - self.mean
        self.variance.add_(share * (variance - self.variance + (1.0 - share) * apart.square()))
        self.mean.add_(share * apart)
        self.count.add_(new)
        self._settle()

    def _settle(self) -> None:
        """What `forward` reads, in float32."""
        self.shift.copy_(self.mean)
        self.scale.copy_((self.variance + self.settings.epsilon).rsqrt())
