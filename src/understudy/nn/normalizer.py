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

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self.register_buffer("mean", moments.mean.clone())
        self.register_buffer("scale", 1.0 / (moments.std + EPSILON))

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) * self.scale

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Normalizer":
        """One that changes nothing: mean 0, scale exactly 1."""
        return cls(unit_moments(shape))


def unit_moments(shape: tuple[int, ...]) -> Moments:
    """Moments whose normaliser is the identity, to the bit."""
    return Moments(torch.zeros(shape), torch.full(shape, 1.0 - EPSILON))
