"""Normalisation of observations, as buffers: saved with the policy, applied wherever it acts.

One thing with two ways to fill it: `fit` takes the moments of a dataset, once; `update` takes in what has been seen,
and goes on from wherever the statistics stand. Nothing else changes them. Whoever learns from rollouts calls `update`
once, after it has learned from one; until then every pass over that rollout sees the numbers the rollout was made with,
and the first ratio of policies is 1.
"""

from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.protocols import Moments
from understudy.core.settings import Settings


def merge_moments(
    mean: Tensor, variance: Tensor, newer: Tensor, variance_of_newer: Tensor, share: Tensor | float
) -> None:
    """Chan's parallel rule, in place: mean and variance of a union from those of both parts; `share` of it is newer."""
    apart = newer - mean
    variance.add_(share * (variance_of_newer - variance + (1.0 - share) * apart.square()))
    mean.add_(share * apart)


FORM = ("epsilon", "epsilon_on", "clip")
"""What a normaliser makes of statistics."""


class NormalizerSettings(Settings):
    """(s − μ)/(σ + ε), or (s − μ)/√(σ² + ε)."""

    epsilon: float = Field(1e-3, gt=0)
    """ε: a column that never changes gives 0, never a division by zero."""
    epsilon_on: Literal["std", "variance"] = "std"
    """What ε is added to: the standard deviation, as D4RL's code has it, or the variance, as Gymnasium's."""
    clip: float | None = Field(None, gt=0)
    """What is normalised is cut to ±clip; null is no limit."""
    until: int | None = Field(None, gt=0)
    """Running statistics rest once this many rows were seen; null is never."""

    def in_form_of(self, other: "NormalizerSettings") -> Self:
        """With the other's ε, its place and its clip; when statistics rest stays its own."""
        return self.model_copy(update=dict(zip(FORM, other.form, strict=True)))

    @property
    def form(self) -> tuple[float, str, float | None]:
        """ε, what it is added to, and clip."""
        return self.epsilon, self.epsilon_on, self.clip

    @property
    def formula(self) -> str:
        """What it makes of statistics: (s − μ)/√(σ² + 1e-08), cut to ±10."""
        divisor = f"(σ + {self.epsilon!r})" if self.epsilon_on == "std" else f"√(σ² + {self.epsilon!r})"
        return f"(s − μ)/{divisor}, " + ("not cut" if self.clip is None else f"cut to ±{self.clip:g}")


class OnPolicyNormalizerSettings(NormalizerSettings):
    """(s − μ)/√(σ² + ε), with μ and σ² of all that was seen."""

    epsilon: float = Field(1e-8, gt=0)
    """ε: a column that never changed gives 0."""
    epsilon_on: Literal["std", "variance"] = "variance"
    """What ε is added to: the variance, as Gymnasium's, or the standard deviation (`std`)."""
    clip: float | None = Field(10.0, gt=0)
    """What is normalised is cut to ±clip; null is no limit."""


class Normalizer(nn.Module):
    """[..., *shape] → the same, normalised in float32. Before anything fills it μ is 0 and σ² is 1.

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
        unit = torch.ones((), dtype=torch.float64, device="cpu")  # not `settle`: computing in outlines loads a compiler
        self.register_buffer("scale", torch.full(shape, float(self._inverse_scale(unit, unit))))

    def forward(self, values: Tensor) -> Tensor:
        normal = (values.float() - self.shift).mul_(self.scale)
        clip = self.settings.clip
        return normal if clip is None else normal.clamp_(-clip, clip)

    def inverse(self, normal: Tensor) -> Tensor:
        """The raw values [..., *shape] of normalised ones, where none was cut."""
        return normal / self.scale + self.shift

    @torch.no_grad()
    def fit(self, moments: Moments, count: int) -> None:
        """The statistics of a dataset of so many rows, to begin or to stay with."""
        self.count.fill_(count)
        self.mean.copy_(moments.mean)
        self.variance.copy_(moments.std.double().square())
        self.shift.copy_(moments.mean)
        self.scale.copy_(self._inverse_scale(moments.std.square(), moments.std))

    @torch.no_grad()
    def update(self, values: Tensor, mask: Tensor | None = None) -> None:
        """Take in values [..., *shape]; where `mask` [...] is False a row does not count, whatever is in it."""
        rows = values.reshape(-1, *self.mean.shape).double()
        counts = torch.ones(len(rows), device=rows.device) if mask is None else mask.reshape(-1)
        self._merge(rows, counts.bool())

    @torch.no_grad()
    def update_from_moments(self, mean: Tensor, variance: Tensor, count: Tensor | float) -> None:
        """Take in rows of which only mean [*shape], variance [*shape] and number are known."""
        new = torch.as_tensor(count, dtype=torch.float64, device=self.count.device)
        if self.settings.until is not None:
            new = torch.where(self.count < self.settings.until, new, 0.0)
        total = (self.count + new).clamp_min(1.0)
        merge_moments(self.mean, self.variance, mean, variance, new / total)
        self.count.add_(new)
        self.settle()

    def _merge(self, rows: Tensor, counts: Tensor) -> None:
        counted = counts.view(-1, *[1] * self.mean.dim())
        size = counts.sum().clamp_min(1)
        mean = torch.where(counted, rows, 0.0).sum(0) / size
        variance = torch.where(counted, rows - mean, 0.0).square().sum(0) / size
        self.update_from_moments(mean, variance, counts.sum().double())

    @torch.no_grad()
    def settle(self) -> None:
        """What `forward` reads, in float32, of the statistics as they stand."""
        self.shift.copy_(self.mean)
        self.scale.copy_(self._inverse_scale(self.variance, self.variance.sqrt()))

    @torch.no_grad()
    def settle_other_form(self) -> bool:
        """`settle`, where what `forward` reads is of these statistics in another form, and whether it was; rounding is
        left as it is."""
        scale = self._inverse_scale(self.variance, self.variance.sqrt()).float()
        other = not torch.allclose(self.scale, scale, rtol=1e-5, atol=0.0)
        if other:
            self.settle()
        return other

    def _inverse_scale(self, variance: Tensor, std: Tensor) -> Tensor:
        epsilon = self.settings.epsilon
        return 1.0 / (std + epsilon) if self.settings.epsilon_on == "std" else (variance + epsilon).rsqrt()
