"""What a chart holds, whoever draws it: lines with bands in the colours of their methods, levels to compare with."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e100
"""Beyond it nothing is drawn: sums and squares of such numbers are none."""
DIGITS = 5
"""Significant ones of a number that is drawn: more than a screen has pixels."""
CROWD = 4
"""Lines in one chart beyond which bands are faint, and levels beyond which names are only in the caption."""
APART = 0.09
"""Share of the height between two levels that both have their names beside them."""
DECADES = 3.0
"""Positive numbers over so many are drawn on a logarithmic axis."""

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Line:
    """One method in one chart, [n] each; NaN where nothing is known."""

    name: str
    color: int
    """The number of its method: the same in every chart."""
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    seeds: tuple[Array, ...] = ()
    """Its runs one by one, [n] each."""


@final
@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with."""

    name: str
    value: float
    color: int = -1
    """The method it belongs to, if to one."""


@final
@dataclass(frozen=True)
class Panel:
    """One chart."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()
    axis: str = ""
    """Which of several charts of the same it is: over updates, or over environment steps."""
    note: str = ""
    """What its number means."""
    y_limits: tuple[float, float] | None = None

    @property
    def heights(self) -> Array:
        """All that the y axis must have room for."""
        parts = [part for line in self.lines for part in (line.y, line.low, line.high, *line.seeds)]
        return drawable([*parts, np.array([level.value for level in self.levels])])

    @property
    def crowded(self) -> bool:
        """Whether bands lie on so many others that they must be faint."""
        return len(self.lines) > CROWD

    @property
    def names_levels(self) -> bool:
        """Whether there is room for the levels' names beside them."""
        values, heights = np.sort([level.value for level in self.levels if drawn(level.value)]), self.heights
        return (
            len(values) <= CROWD and bool((np.diff(values) >= APART * np.ptp(heights)).all()) if len(heights) else False
        )

    @property
    def logarithmic(self) -> bool:
        values = drawable([line.y for line in self.lines])
        if self.y_limits is not None or not len(values) or values.min() <= 0:
            return False
        return math.log10(values.max()) - math.log10(values.min()) > DECADES

    def to_json(self) -> dict[str, Any]:
        """For the page's script; compact, and without what JSON has no number for."""
        return {
            "title": self.title,
            "x": self.x_label,
            "y": self.y_label,
            "log": self.logarithmic,
            **({"crowded": True} if self.crowded else {}),
            **({"named": True} if self.levels and self.names_levels else {}),
            **({"limits": list(self.y_limits)} if self.y_limits is not None else {}),
            "lines": [_line_json(line) for line in self.lines],
            "levels": [[level.name, level.value, level.color] for level in self.levels if drawn(level.value)],
        }


def _line_json(line: Line) -> dict[str, Any]:
    banded = line.low is not None and line.high is not None
    return {
        "name": line.name,
        "m": line.color,
        "x": plain(line.x),
        "y": plain(line.y),
        **({"low": plain(line.low), "high": plain(line.high)} if banded else {}),
        **({"seeds": [plain(y) for y in line.seeds]} if line.seeds else {}),
    }


def plain(values: ArrayLike | None) -> list[float | int | None]:
    """Numbers as short as they may be; null where nothing is drawn."""
    return [_short(float(value)) if drawn(value) else None for value in np.asarray(values, np.float64)]


def _short(value: float) -> float | int:
    short = float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS or value % 1 else value
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def drawn(value: float) -> bool:
    return abs(value) <= LARGEST  # NaN is not


def cleaned(values: ArrayLike) -> Array:
    """With NaN for what cannot be drawn."""
    array = np.array(values, np.float64)
    array[~(np.abs(array) <= LARGEST)] = np.nan
    return array


def drawable(arrays: Iterable[Array | None]) -> Array:
    """All that can be drawn of some arrays, one after another."""
    found = [array[np.abs(array) <= LARGEST] for array in arrays if array is not None]
    return np.concatenate(found) if found else np.zeros(0)


def thinned(count: int, most: int) -> NDArray[np.int64]:
    """Which of so many points are drawn: the last, and evenly many before it."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.round(np.linspace(0, count - 1, most)).astype(np.int64))


def worth_drawing(panels: Sequence[Panel]) -> list[Panel]:
    """Those with a line of at least two points."""
    return [panel for panel in panels if any(np.isfinite(line.y).sum() > 1 for line in panel.lines)]
