"""The time feature: an observation column that only counts the steps of an episode."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_ROWS = 10
"""A column may well be straight over fewer rows by chance, or because nothing has happened yet."""


def time_column(episodes: Iterable[NDArray[Any]]) -> int | None:
    """The column that grows or falls by the same amount at every step of every episode; of several, the last.

    Each episode is [n, S] observations in order; shorter ones than LEAST_ROWS say nothing. Agents trained with a
    time feature see it appended (opolo: 1 − t/1000); the plain environment has no such column.
    """
    slopes, straight = [], []
    for episode in episodes:
        if len(episode) >= LEAST_ROWS:
            with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is no line
                slope, is_straight = _lines(np.asarray(episode, dtype=np.float64))
            slopes.append(slope)
            straight.append(is_straight)
    if not slopes:
        return None
    each = np.array(slopes)
    with np.errstate(invalid="ignore"):
        same = np.abs(each - each[0]).max(axis=0) <= 1e-2 * np.abs(each[0])
    found = np.flatnonzero(np.all(straight, axis=0) & same)
    return int(found[-1]) if found.size else None


def _lines(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Slope per step of each column of [n, S], and whether the column is that line (and not level) -> [S], [S]."""
    steps = np.arange(len(values))[:, None]
    slope = (values[-1] - values[0]) / (len(values) - 1)
    off = np.abs(values - values[0] - slope * steps).max(axis=0)
    travel = np.abs(values[-1] - values[0])
    rounding = 4 * np.finfo(np.float32).eps * np.abs(values).max(axis=0)
    return slope, (off <= rounding + 1e-6 * travel) & (travel > 100 * rounding)
