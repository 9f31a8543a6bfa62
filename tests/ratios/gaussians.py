"""Two normal samples whose ratio is known."""

import math

import torch
from torch import Tensor

MEAN, DEVIATION = 0.5, 0.8
KL = 0.168144
"""KL(N(.5, .8²) ‖ N(0, 1))"""


def samples(seed: int, count: int = 1000, features: int = 1) -> tuple[Tensor, Tensor]:
    """N(.5, .8²) and N(0, 1) in the first feature, N(0, 1) in all others: each [count, features]."""
    generator = torch.Generator().manual_seed(seed)
    above, below = (torch.randn(count, features, generator=generator, dtype=torch.float64) for _ in range(2))
    above[:, 0] = above[:, 0] * DEVIATION + MEAN
    return above, below


def true_ratio(rows: Tensor) -> Tensor:
    """[n, d] → [n]"""
    first = rows[:, 0]
    return torch.exp(first.square() / 2 - ((first - MEAN) / DEVIATION).square() / 2 - math.log(DEVIATION))


def true_relative(rows: Tensor, alpha: float) -> Tensor:
    ratio = true_ratio(rows)
    return ratio / (alpha * ratio + 1 - alpha)


def grid() -> Tensor:
    """Where both are seen: [451, 1]"""
    return torch.linspace(-2, 2.5, 451, dtype=torch.float64)[:, None]


def correlation(one: Tensor, two: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, two]))[0, 1])


def error(one: Tensor, two: Tensor) -> float:
    """Root of the mean square."""
    return float((one - two).square().mean().sqrt())
