"""Weights as a learner takes them: normalised, clipped, and with the numbers to watch.

`losses.weights.effective_sample_size` is the same formula for a learner's hot path, a tensor it need not wait for; this
room knows nothing of losses and gives plain numbers in float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.errors import ConfigError, DataError


@dataclass(frozen=True)
class WeightStatistics:
    """What to watch about weights."""

    count: int
    mean: float
    smallest: float
    largest: float
    effective_sample_size: float
    """(Σw)²/Σw²: how many equally weighted rows would carry as much information."""
    clipped_share: float
    """Share of rows that lay outside the bounds."""

    @property
    def effective_share(self) -> float:
        """Of all rows: 1 where all weigh the same."""
        return self.effective_sample_size / self.count


@dataclass(frozen=True)
class Weighing:
    """Weights [n] ready for use, and the statistics of them."""

    weights: Tensor
    statistics: WeightStatistics


def normalise(weights: Tensor) -> Tensor:
    """w/mean w [n]: they average 1."""
    _check(weights)
    mean = weights.mean()
    if not float(mean) > 0:
        raise DataError("weights", "all zero: nothing to normalise")
    return weights / mean


def clip(weights: Tensor, low: float = 0.1, high: float = 10.0) -> Tensor:
    """Each within [low, high]; for weights [n] that average about 1."""
    _check(weights)
    _check_bounds(low, high)
    return weights.clamp(low, high)


def tame(weights: Tensor, low: float = 0.1, high: float = 10.0) -> Weighing:
    """Normalised, clipped to [low, high], normalised again: average 1 exactly, bounds up to that last factor."""
    raw = normalise(weights)
    ready = normalise(clip(raw, low, high))
    return Weighing(ready, _statistics(ready, outside_share(raw, low, high)))


def weight_statistics(weights: Tensor, low: float = 0.0, high: float = torch.inf) -> WeightStatistics:
    """Of weights [n]; the clipped share is that of rows outside [low, high]."""
    _check(weights)
    return _statistics(weights, outside_share(weights, low, high))


def outside_share(weights: Tensor, low: float, high: float) -> float:
    """Share of weights [n] that [low, high] would change."""
    _check_bounds(low, high)
    return float(((weights < low) | (weights > high)).double().mean())


def plain_ratio(relative: Tensor, alpha: float) -> Tensor:
    """w = (1−a)·r/(1−a·r) [n] of relative ratios r [n] in [0, 1/a); at 1/a it would be infinite, and is refused."""
    _check(relative)
    if not 0 <= alpha < 1:
        raise ConfigError("plain_ratio.alpha", "wrong value", got=alpha, expected="0 or more, and below 1")
    if bool((alpha * relative >= 1).any()):
        largest, bound = float(relative.max()), f"below {1 / alpha:g}"
        do = "Clip the relative ratios first, or use them as they are."
        raise DataError("plain_ratio", "no ratio belongs to this", got=f"{largest:g}", expected=bound, do=do)
    return (1 - alpha) * relative / (1 - alpha * relative)


def _statistics(weights: Tensor, clipped_share: float) -> WeightStatistics:
    values = weights.double()
    squares = float(values.square().sum())
    return WeightStatistics(
        count=len(values),
        mean=float(values.mean()),
        smallest=float(values.min()),
        largest=float(values.max()),
        effective_sample_size=float(values.sum()) ** 2 / squares if squares else 0.0,
        clipped_share=clipped_share,
    )


def _check(weights: Tensor) -> None:
    if weights.ndim != 1 or not len(weights):
        raise DataError("weights", "wrong shape", got=list(weights.shape), expected="[rows], at least one")
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise DataError("weights", "must be finite and not negative", got=f"smallest {float(weights.min()):g}")


def _check_bounds(low: float, high: float) -> None:
    if not 0 <= low < high:
        raise ConfigError("weights", "wrong bounds", got=f"[{low:g}, {high:g}]", expected="0 ≤ low < high")
