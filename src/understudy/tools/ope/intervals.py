"""How far an estimate is to be believed: resamplings of episodes, the same for everybody.

What is a ratio of sums over episodes is resampled a thousand times (`Resampling`): each draw takes as many episodes as
there are, with replacement, and as many seeds, and an interval is the percentiles of the draws (`around`).

Critics cannot be trained so often. Each of K seeds learns from one resample of the episodes, and v_k is what it says of
its starts. As v_k are scattered about what all the data say, so is that about the truth: their mean v̄ is away from the
truth with a variance of (1 + 1/K)·σ², and s², that of v_k, estimates σ², of episodes and training (`of_resamples`):

    v̄ ± t_{K−1}·s·√(1 + 1/K)

Two candidates are compared within a draw or a seed, so that what the episodes share cancels out. What no interval says:
how wrong a critic is about actions that the data does not hold.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.tools.experiments.statistics import Estimate
from understudy.tools.ope.estimators import Terms, estimates

Array = NDArray[np.float64]
Interval = Callable[[float, Array], Estimate]
"""Of a value and its draws."""
HALVINGS = 60
DRAWS, CONFIDENCE = 1000, 0.95
BLOCK = 1 << 22
"""Counts of episodes that are in memory at once."""


@final
@dataclass(frozen=True)
class Resampling:
    """Which episodes and seeds each draw takes, as counts."""

    episodes: int
    seeds: int
    draws: int = DRAWS
    seed: int = 0

    def of(self, terms: list[Terms]) -> Array:
        """The estimate in every draw [D], from the terms of every seed over the same episodes."""
        if len(terms) != self.seeds or any(len(one.numerator) != self.episodes for one in terms):
            raise DataError("bootstrap", "not the episodes and seeds that are drawn from")
        found, rng = np.empty(self.draws), np.random.default_rng(self.seed)
        taken = rng.multinomial(self.seeds, np.full(self.seeds, 1 / self.seeds), size=self.draws) / self.seeds
        rows = max(1, BLOCK // self.episodes)
        for first in range(0, self.draws, rows):
            part = slice(first, min(first + rows, self.draws))
            picked = rng.integers(self.episodes, size=(part.stop - part.start, self.episodes))
            counts = np.stack([np.bincount(row, minlength=self.episodes) for row in picked]).astype(np.float64)
            by_seed = np.stack([estimates(one, counts) for one in terms], axis=1)
            found[part] = (by_seed * taken[part]).sum(1)
        return found


def around(value: float, draws: Array, confidence: float = CONFIDENCE) -> Estimate:
    """With the percentiles of its draws. Draws that know nothing (NaN) may be anything: with many there is no limit."""
    beyond = np.isnan(draws)
    low = _quantile(np.where(beyond, -np.inf, draws), (1 - confidence) / 2)
    return Estimate(value, low, -_quantile(np.where(beyond, -np.inf, -draws), (1 - confidence) / 2))


def _quantile(draws: Array, share: float) -> float:
    """NaN where it is not finite."""
    lower, higher = (np.quantile(draws, share, method=method) for method in ("lower", "higher"))
    return float(np.quantile(draws, share)) if np.isfinite([lower, higher]).all() else float("nan")


def of_resamples(value: float, values: Array, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of what K resamples say, each with critics of its own [K]; of one there are no limits."""
    count = len(values)
    if count < 2 or not np.isfinite(values).all():
        return Estimate(value, math.nan, math.nan)
    margin = student_quantile(confidence, count - 1) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / count)
    return Estimate(value, value - margin, value + margin)


@cache
def student_quantile(confidence: float, degrees: int) -> float:
    """The t that Student's distribution of so many degrees of freedom is within, −t to t, with this probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """P(|T| < √ν·tan θ) of whole degrees ν in closed form (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    odd, cosine = degrees % 2, math.cos(angle)
    power = np.arange(odd, degrees - 2, 2)
    series = cosine**odd * (1 + float(np.cumprod(cosine**2 * (power + 1) / (power + 2)).sum())) if degrees > 1 else 0.0
    return 2 / math.pi * (angle + math.sin(angle) * series) if odd else math.sin(angle) * series


def above(draws: Array, other: Array, interval: Interval = around) -> bool:
    """Whether one is above the other in the same draws, nearly always."""
    with np.errstate(invalid="ignore"):  # of critics that diverged
        apart = draws - other
        return interval(float(apart.mean()), apart).low > 0
