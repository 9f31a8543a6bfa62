"""Observation normalisation as buffers: saved with the policy, applied wherever it acts."""

import torch
from torch import Tensor, nn

from understudy.core.protocols import Moments

EPSILON = 1e-3
"""(s − μ)/(σ + 1e-3): a constant column gives 0, never a division by zero."""


class Normalizer(nn.Module):
    """[B, …] → (s − μ)/(σ + ε), with statistics fixed when the run is built."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) * self.scale

    @classmethod
    def of(cls, moments: Moments) -> "Normalizer":
        """By the moments of a dataset."""
        return cls(moments.mean.clone(), 1.0 / (moments.std + EPSILON))

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Normalizer":
        """One that changes nothing: mean 0, scale exactly 1."""
        return cls(torch.zeros(shape), torch.ones(shape))


def unit_moments(shape: tuple[int, ...]) -> Moments:
    """Moments whose normaliser is the identity, to the bit."""
    return Moments(torch.zeros(shape), torch.full(shape, 1.0 - EPSILON))
