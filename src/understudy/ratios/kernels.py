"""Kernels: how alike two rows are, and over which distance.

Every entry is computed by the same additions in the same order whatever else is in the matrix, so that a chunk of rows
gives the same bits as all of them. A matrix product does not promise that.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from understudy.core.errors import ConfigError

KernelName = Literal["gaussian", "linear", "polynomial"]
MEDIAN_ROWS = 1000


class Kernel(Protocol):
    """k(x, c) for rows [n, d] and centres [c, d]."""

    def matrix(self, rows: Tensor, centres: Tensor) -> Tensor:
        """[n, c]"""
        ...

    def own(self, centres: Tensor) -> Tensor:
        """k(c, c) [c]"""
        ...


@dataclass(frozen=True)
class Gaussian:
    """exp(−‖x − c‖²/2σ²)"""

    bandwidth: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise ConfigError("kernel.bandwidth", "wrong value", got=self.bandwidth, expected="a number above 0")

    def matrix(self, rows: Tensor, centres: Tensor) -> Tensor:
        return squared_distances(rows, centres).mul_(-0.5 / self.bandwidth**2).exp_()

    def own(self, centres: Tensor) -> Tensor:
        return centres.new_ones(len(centres))


@dataclass(frozen=True)
class Polynomial:
    """(x·c·scale + offset)^degree. Never negative where the degree is even."""

    degree: int = 2
    scale: float = 1.0
    offset: float = 1.0

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ConfigError("kernel.degree", "wrong value", got=self.degree, expected="1 or more")
        if not (math.isfinite(self.scale) and self.scale > 0 and math.isfinite(self.offset) and self.offset >= 0):
            got = f"scale {self.scale}, offset {self.offset}"
            raise ConfigError("kernel", "wrong value", got=got, expected="scale above 0, offset not below 0")

    def matrix(self, rows: Tensor, centres: Tensor) -> Tensor:
        return products(rows, centres).mul_(self.scale).add_(self.offset).pow_(self.degree)

    def own(self, centres: Tensor) -> Tensor:
        return (centres.square().sum(1) * self.scale + self.offset) ** self.degree


@dataclass(frozen=True)
class Linear:
    """x·c + offset. A ratio needs the offset: without one it would vanish at the mean of scaled features."""

    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.offset) and self.offset >= 0):
            raise ConfigError("kernel.offset", "wrong value", got=self.offset, expected="0 or more")

    def matrix(self, rows: Tensor, centres: Tensor) -> Tensor:
        return products(rows, centres).add_(self.offset)

    def own(self, centres: Tensor) -> Tensor:
        return centres.square().sum(1) + self.offset


def squared_distances(rows: Tensor, centres: Tensor) -> Tensor:
    """‖x − c‖² [n, c], summed feature by feature: ‖x‖² + ‖c‖² − 2x·c would cancel to less than zero."""
    return torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist").square_()


def products(rows: Tensor, centres: Tensor) -> Tensor:
    """x·c [n, c], summed feature by feature."""
    total = rows.new_zeros(len(rows), len(centres))
    for feature in range(rows.shape[1]):
        total += rows[:, feature, None] * centres[None, :, feature]
    return total


def median_distance(rows: Tensor, generator: torch.Generator) -> float:
    """The median distance of pairs of rows [n, d] that differ, from at most a thousand rows."""
    drawn = rows[torch.randperm(len(rows), generator=generator)[:MEDIAN_ROWS]]
    distances = torch.pdist(drawn)
    apart = distances[distances > 0]
    return float(apart.median()) if len(apart) else 0.0
