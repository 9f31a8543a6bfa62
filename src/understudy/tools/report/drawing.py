"""Charts as SVG, without a script: what a page shows on paper, in mail, and where nothing may run.

Colours are variables of the page, so that one drawing is right by day and by night. Written by hand because of that,
and because a page has a hundred of them: matplotlib takes twenty times as long for one, and three times the bytes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.ticker import MaxNLocator

from understudy.tools.report.markup import Markup, element, joined, number, shortened, told_apart
from understudy.tools.report.panels import Array, Level, Line, Panel, cleaned, drawable, drawn

COLORS = 8
"""Hues of a page; further methods have them again, dashed."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")
LEFT, RIGHT, TOP, BOTTOM = 58.0, 20.0, 10.0, 40.0
SMALL, LARGE = (400.0, 230.0), (720.0, 340.0)
LETTER = 8.2
"""Width of one in a name, at most, on average."""
MARGIN = 0.04
"""Of the range, above and below what is drawn."""


def colored(method: int, kind: str = "") -> dict[str, str | None]:
    """Attributes of what belongs to a method: its colour, and a name by which a script finds it."""
    if method < 0:
        return {"class_": kind}
    return {"class_": f"{kind} m{method}".strip(), "style": f"--m:var(--c{method % COLORS})"}


@final
@dataclass(frozen=True)
class Scale:
    """From numbers to places in a drawing."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, values: Array) -> Array:
        inside = np.log10(np.maximum(values, 1e-300)) if self.logarithmic else values
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def least(self) -> float:
        """Below it there is no paper: a logarithmic axis has no place for 0."""
        return float(10.0**self.low) if self.logarithmic else -math.inf

    def at(self, value: float) -> float:
        return float(self(np.array([value]))[0])

    def ticks(self, most: int) -> list[float]:
        if self.logarithmic:
            exponents = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [10.0**exponent for exponent in exponents[:: max(len(exponents) // most, 1)]]
        places = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
        slack = (self.high - self.low) * 1e-9
        return [float(place) for place in places if self.low - slack <= place <= self.high + slack]


def scale(values: Array, start: float, end: float, *, margin: float = 0.0, logarithmic: bool = False) -> Scale:
    """One that has room for all of these numbers."""
    known = np.log10(values) if logarithmic else values
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if not high > low:
        low, high = low - max(abs(low), 1.0) * 0.05, high + max(abs(high), 1.0) * 0.05
    room = (high - low) * margin
    return Scale(low - room, high + room, start, end, logarithmic)


def draw(panel: Panel, size: tuple[float, float] = SMALL) -> Markup:
    """A chart as an SVG element that is as wide as its place."""
    width, height = size
    x = scale(drawable([line.x for line in panel.lines]), LEFT, width - RIGHT)
    y = _y_scale(panel, height)
    return element(
        "svg",
        *_grid(x, y, panel, size),
        *(_level(level, x, y, named=panel.names_levels) for level in panel.levels if drawn(level.value)),
        *(element("g", *_line(line, x, y), **colored(line.color)) for line in panel.lines),
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=f"{panel.title}: {panel.y_label} over {panel.x_label}",
        class_="chart crowded" if panel.crowded else "chart",
    )


def _y_scale(panel: Panel, height: float) -> Scale:
    values = np.array(panel.y_limits) if panel.y_limits is not None else panel.heights
    log = panel.logarithmic
    return scale(values[values > 0] if log else values, height - BOTTOM, TOP, margin=MARGIN, logarithmic=log)


def _grid(x: Scale, y: Scale, panel: Panel, size: tuple[float, float]) -> Iterator[Markup]:
    for value in y.ticks(5 if size[1] <= SMALL[1] else 7):
        place = f"{y.at(value):.1f}"
        yield element("line", x1=f"{LEFT:g}", x2=f"{size[0] - RIGHT:g}", y1=place, y2=place, class_="grid")
        yield element("text", tick(value), x=f"{LEFT - 7:g}", y=place, dy="0.34em", class_="y")
    for value in x.ticks(6 if size[0] > SMALL[0] else 4):
        yield element("text", tick(value), x=f"{x.at(value):.1f}", y=f"{size[1] - BOTTOM + 17:g}", class_="x")
    below = f"{size[1] - 6:g}"
    yield element("text", panel.x_label, x=f"{size[0] - RIGHT:g}", y=below, class_="axis")


def tick(value: float) -> str:
    """1.5k, 20k, 1M: short enough to stand side by side."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e12 and abs(value) >= 1e4 * (unit == "k"):
            return f"{value / size:g}{unit}".replace("-", "−")
    return f"{value:,g}".replace("-", "−") if abs(value) < 1e4 else number(value, 3)


def _level(level: Level, x: Scale, y: Scale, *, named: bool) -> Markup:
    place = f"{y.at(level.value):.1f}"
    line = element("line", x1=f"{x.start:g}", x2=f"{x.end:g}", y1=place, y2=place)
    told = element("text", level.name, x=f"{x.end:g}", y=place, dy="-4") if named else ""
    return element(
        "g", line, told, element("title", f"{level.name}: {number(level.value)}"), **colored(level.color, "level")
    )


def _line(line: Line, x: Scale, y: Scale) -> Iterator[Markup]:
    places, heights = x(cleaned(line.x)), y(cleaned(line.y))
    if line.low is not None and line.high is not None:
        low, high = (np.maximum(cleaned(limit), y.least) for limit in (line.low, line.high))
        yield element("path", d=_area(places, y(low), y(high)), class_="band")
    if line.seeds:
        paths = (element("path", d=_path(places, y(cleaned(values)))) for values in line.seeds)
        yield element("g", *paths, class_="seeds")
    dash = DASHES[line.color // COLORS % len(DASHES)] or None
    yield element("path", element("title", line.name), d=_path(places, heights), class_="line", stroke_dasharray=dash)
    yield from _lonely(places, heights)


def _stretches(known: np.ndarray) -> list[np.ndarray]:
    """Places in a row that are known, stretch by stretch."""
    where = np.flatnonzero(known)
    return [part for part in np.split(where, np.flatnonzero(np.diff(where) > 1) + 1) if len(part)]


def _path(x: Array, y: Array) -> Markup:
    """Broken where nothing is known."""
    return Markup("".join("M" + _points(x[part], y[part]) for part in _stretches(np.isfinite(x) & np.isfinite(y))))


def _points(x: Array, y: Array) -> str:
    """The first place, and from each the way to the next: in tenths, so that no error adds up."""
    places = np.round(np.stack([x, y], 1) * 10).astype(np.int64)
    ways = "".join(f"{_short(a)} {_short(b)} ".replace(" -", "-") for a, b in np.diff(places, axis=0).tolist())
    return f"{_short(places[0, 0])} {_short(places[0, 1])}" + (f"l{ways.rstrip()}" if ways else "")


def _short(tenths: int) -> str:
    return f"{tenths / 10:g}"


def _area(x: Array, low: Array, high: Array) -> Markup:
    parts = _stretches(np.isfinite(x) & np.isfinite(low) & np.isfinite(high))
    both = [(np.concatenate([x[part], x[part][::-1]]), np.concatenate([low[part], high[part][::-1]])) for part in parts]
    return Markup("".join(f"M{_points(places, values)}Z" for places, values in both))


def _lonely(x: Array, y: Array) -> Iterator[Markup]:
    """A point with nothing beside it, which a path would not show."""
    for part in _stretches(np.isfinite(x) & np.isfinite(y)):
        if len(part) == 1:
            yield element("circle", cx=f"{x[part[0]]:.1f}", cy=f"{y[part[0]]:.1f}", r="2.5", class_="point")


@final
@dataclass(frozen=True)
class Row:
    """One number with its interval, and the seeds behind it."""

    name: str
    color: int
    value: float
    low: float
    high: float
    seeds: tuple[float, ...] = ()


def draw_intervals(rows: Sequence[Row], label: str, levels: Sequence[Level] = (), width: float = 440.0) -> Markup:
    """A line per row: a bar for the interval, a dot for the estimate, a ring for every seed."""
    step, top = 28.0, 8.0
    left = min(max(max(len(row.name) for row in rows) * LETTER, 60.0), 0.42 * width) + 14
    height = top + step * len(rows) + BOTTOM
    parts = [np.array([row.value, row.low, row.high, *row.seeds]) for row in rows]
    values = drawable([*parts, np.array([level.value for level in levels])])
    x = scale(values, left, width - RIGHT, margin=MARGIN)
    y = Scale(0.0, float(len(rows)), top, top + step * len(rows))
    ticks = [_vertical(x.at(value), tick(value), y, height) for value in x.ticks(5)]
    marks = [_level_across(level, x, y) for level in levels if drawn(level.value)]
    told = element("text", label, x=f"{width - RIGHT:g}", y=f"{height - 6:g}", class_="axis")
    names = told_apart([shortened(row.name) for row in rows], int((left - 14) / LETTER))
    bars = [
        _bar(row, name, x, y.at(place + 0.5), left) for place, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    return element(
        "svg", *ticks, *marks, told, *bars, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label,
        class_="chart intervals",
    )  # fmt: skip


def _vertical(place: float, told: str, y: Scale, height: float) -> Markup:
    line = element("line", x1=f"{place:.1f}", x2=f"{place:.1f}", y1=f"{y.start:g}", y2=f"{y.end:g}", class_="grid")
    return joined(line, element("text", told, x=f"{place:.1f}", y=f"{height - BOTTOM + 17:g}", class_="x"))


def _level_across(level: Level, x: Scale, y: Scale) -> Markup:
    place = f"{x.at(level.value):.1f}"
    line = element("line", x1=place, x2=place, y1=f"{y.start:g}", y2=f"{y.end:g}")
    told = element("title", f"{level.name}: {number(level.value)}")
    return element("g", line, told, **colored(level.color, "level"))


def _bar(row: Row, name: str, x: Scale, place: float, left: float) -> Markup:
    height = f"{place:.1f}"
    parts = [
        element("text", name, element("title", row.name), x=f"{left - 14:g}", y=height, dy="0.34em", class_="name")
    ]
    if drawn(row.low) and drawn(row.high):
        ends = {"x1": f"{x.at(row.low):.1f}", "x2": f"{x.at(row.high):.1f}"}
        parts.append(element("line", **ends, y1=height, y2=height, class_="bar"))
    parts += [
        element("circle", cx=f"{x.at(value):.1f}", cy=height, r="3", class_="seed")
        for value in row.seeds
        if drawn(value)
    ]
    if drawn(row.value):
        told = f"{row.name}: {number(row.value)} [{number(row.low)}, {number(row.high)}]"
        dot = element("circle", element("title", told), cx=f"{x.at(row.value):.1f}", cy=height, r="5", class_="point")
        parts.append(dot)
    return element("g", *parts, **colored(row.color))


def strip(values: Sequence[float], low: float, high: float) -> Markup:
    """Episodes of one evaluation as ticks on a line, on the scale of others beside it."""
    width, height = 150.0, 18.0
    x = scale(drawable([np.array([low, high])]), 4.0, width - 4.0)
    marks = element("path", d=Markup("".join(f"M{x.at(value):.1f} 4v10" for value in values if drawn(value))))
    axis = element("line", x1="0", x2=f"{width:g}", y1="9", y2="9", class_="grid")
    return element("svg", axis, marks, viewBox=f"0 0 {width:g} {height:g}", class_="strip", role="img")
