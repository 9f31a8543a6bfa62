"""How far an estimate is to be believed: bootstraps over episodes and seeds, the same draws for everybody.

Each draw takes as many episodes as there are, with replacement, and as many seeds: what both vary is in the interval.
Two candidates are compared within a draw, so that what the episodes share cancels out. What no interval says: how wrong
a critic is about actions that the data does not hold.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.tools.experiments.statistics import Estimate
from understudy.tools.ope.estimators import Terms, estimates

Array = NDArray[np.float64]
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


def above(draws: Array, other: Array, confidence: float = CONFIDENCE) -> bool:
    """Whether one is above the other in the same draws, nearly always."""
    return around(0.0, draws - other, confidence).low > 0
