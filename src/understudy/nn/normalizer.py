"""Observation normalisation as buffers: saved with the policy, applied wherever it acts."""

import torch
from torch import Tensor, nn

from understudy.core.protocols import NORMALIZER_EPSILON, Moments


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
        return cls(moments.mean.clone(), 1.0 / (moments.std + NORMALIZER_EPSILON))

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Normalizer":
        """One that changes nothing: mean 0, scale exactly 1."""
        return cls(torch.zeros(shape), torch.ones(shape))
