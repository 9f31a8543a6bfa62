"""Numbers of one column, gathered as its rows go by: range, mean, spread, and what is not finite."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.data.episode import Array

LARGEST = float(np.finfo(np.float32).max)
"""Networks compute in float32: what does not fit is as good as infinite."""
TALLY_BYTES = 4 << 20
Floats = NDArray[np.float64]


class Place(NamedTuple):
    """Where a value lies; `column` counts through all dimensions of a row."""

    episode: int
    row: int
    column: int


@dataclass(frozen=True)
class ColumnSurvey:
    """One observation group, the actions, the rewards or a further column; C numbers per row."""

    name: str
    shape: tuple[int, ...]
    """Of one row."""
    dtypes: tuple[str, ...]
    """As recorded; more than one if episodes differ."""
    rows: int
    minimum: Floats
    """[C] like `maximum`, `mean` and `std`: over the finite values, NaN where there is none."""
    maximum: Floats
    mean: Floats
    std: Floats
    non_finite: int = 0
    """NaN, infinite, or too large for float32."""
    first_non_finite: Place | None = None

    @property
    def constant(self) -> list[int]:
        """Columns that never change, if there was more than one row."""
        return np.flatnonzero(self.minimum == self.maximum).tolist() if self.rows > 1 else []

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "dtypes": list(self.dtypes),
            "rows": self.rows,
            **{name: numbers_json(getattr(self, name)) for name in ("minimum", "maximum", "mean", "std")},
            "constant": self.constant,
            "non_finite": self.non_finite,
            "first_non_finite": self.first_non_finite and self.first_non_finite._asdict(),
        }


def numbers_json(values: Floats) -> list[float | None]:
    """A list that strict JSON can hold."""
    return [float(value) if np.isfinite(value) else None for value in values]


class ColumnTally:
    """Grows row by row; blocks are merged exactly as if they had come at once (Chan, Golub and LeVeque 1979)."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        size = int(np.prod(shape, dtype=np.int64))
        self.rows = self.non_finite = 0
        self.first: tuple[int, int] | None = None
        """Row (counted over everything added) and column of the first value that is not finite."""
        self._dtypes: set[str] = set()
        self._count = np.zeros(size)
        self._mean, self._squares = np.zeros(size), np.zeros(size)
        self._low, self._high = np.full(size, np.inf), np.full(size, -np.inf)

    def add(self, values: Array, dtypes: frozenset[str]) -> None:
        """Rows [n, …], recorded in `dtypes`."""
        self._dtypes |= dtypes
        flat = values.reshape(len(values), -1)
        rows = max(1, TALLY_BYTES // (8 * max(1, flat.shape[1])))
        for start in range(0, len(flat), rows):
            self._add(np.asarray(flat[start : start + rows], np.float64))

    def _add(self, values: Floats) -> None:
        low, high = values.min(axis=0), values.max(axis=0)
        with np.errstate(invalid="ignore"):
            whole = bool(np.all((low >= -LARGEST) & (high <= LARGEST)))
        if whole:
            mean = values.mean(axis=0)
            apart = values - mean
            squares = np.einsum("ij,ij->j", apart, apart)
            self._merge(np.full(len(mean), float(len(values))), mean, squares, low, high)
        else:
            self._add_broken(values)
        self.rows += len(values)

    def _add_broken(self, values: Floats) -> None:
        """The same over the finite values only."""
        finite = np.abs(values) <= LARGEST
        broken = ~finite
        self.non_finite += int(broken.sum())
        if self.first is None:
            row = int(np.flatnonzero(broken.any(axis=1))[0])
            self.first = self.rows + row, int(np.flatnonzero(broken[row])[0])
        count = finite.sum(axis=0).astype(np.float64)
        kept = np.where(finite, values, 0.0)
        mean = kept.sum(axis=0) / np.maximum(count, 1)
        squares = np.where(finite, kept - mean, 0.0)
        np.square(squares, out=squares)
        low, high = np.where(finite, values, np.inf).min(axis=0), np.where(finite, values, -np.inf).max(axis=0)
        self._merge(count, mean, squares.sum(axis=0), low, high)

    def _merge(self, count: Floats, mean: Floats, squares: Floats, low: Floats, high: Floats) -> None:
        total = np.maximum(self._count + count, 1)
        shift = mean - self._mean
        self._squares += squares + shift**2 * (self._count * count / total)
        self._mean += shift * (count / total)
        self._count += count
        np.minimum(self._low, low, out=self._low)
        np.maximum(self._high, high, out=self._high)

    def survey(self, first: Place | None) -> ColumnSurvey:
        none = self._count == 0
        low, high, mean = (np.where(none, np.nan, numbers) for numbers in (self._low, self._high, self._mean))
        std = np.where(none, np.nan, np.sqrt(self._squares / np.maximum(self._count, 1)))
        dtypes = tuple(sorted(self._dtypes))
        return ColumnSurvey(self.name, self.shape, dtypes, self.rows, low, high, mean, std, self.non_finite, first)


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
