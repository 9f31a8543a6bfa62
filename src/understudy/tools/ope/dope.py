"""How good an offline ranking was, once true returns are known, in DOPE's numbers (Fu et al. 2021, arXiv:2103.16596).

    rank correlation   Spearman's ρ of estimates and true values over policies           `rank_correlation`
    regret@k           best true value − best true value among the k highest estimates    `regret_at`
    absolute error     mean |V̂ − V|                                                      `absolute_error`

The latter two also as shares of the range of true values (`normalized=True`), so that tasks can be set side by side.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.core.errors import DataError

Array = NDArray[np.float64]


def ranks(values: ArrayLike) -> Array:
    """1 for the smallest [n]; equals share the mean of their ranks."""
    given = np.asarray(values, np.float64)
    _, place, count = np.unique(given, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    shared: Array = (last - (count - 1) / 2)[place]
    return shared


def rank_correlation(estimated: ArrayLike, true: ArrayLike) -> float:
    """From −1 to 1; NaN where all of either are equal."""
    a, b = (ranks(values) for values in _pair(estimated, true))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else float("nan")


def regret_at(k: int, estimated: ArrayLike, true: ArrayLike, *, normalized: bool = False) -> float:
    """What is lost by trying the k that look best and keeping the best of them. Of equal estimates the worse counts."""
    guess, value = _pair(estimated, true)
    if not 1 <= k <= len(value):
        raise DataError("regret", "not a number of policies", got=k, expected=f"1 to {len(value)}")
    chosen = np.lexsort((value, -guess))[:k]
    return float(value.max() - value[chosen].max()) / (_range(value) if normalized else 1.0)


def absolute_error(estimated: ArrayLike, true: ArrayLike, *, normalized: bool = False) -> float:
    guess, value = _pair(estimated, true)
    return float(np.abs(guess - value).mean()) / (_range(value) if normalized else 1.0)


def _range(value: Array) -> float:
    """NaN where all are equal."""
    return float(value.max() - value.min()) or float("nan")


def _pair(estimated: ArrayLike, true: ArrayLike) -> tuple[Array, Array]:
    guess, value = np.asarray(estimated, np.float64), np.asarray(true, np.float64)
    if guess.ndim != 1 or guess.shape != value.shape or len(guess) < 2:
        raise DataError(
            "ranking",
            "not one estimate for each of several policies",
            got=f"{list(guess.shape)} and {list(value.shape)}",
        )
    if not (np.isfinite(guess).all() and np.isfinite(value).all()):
        raise DataError("ranking", "numbers that are not finite cannot be ranked")
    return guess, value
