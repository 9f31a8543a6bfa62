"""Pictures of a search: its history with what fresh seeds said, and each setting against what came of it."""

import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from understudy.run.plots import LEVEL, PALETTE, save_figure
from understudy.tools.tuning.confirm import Confirmed
from understudy.tools.tuning.plan import GIVEN, Plan
from understudy.tools.tuning.space import Choices, Dimension, Range
from understudy.tools.tuning.study import TrialRow

SEARCHED, FRESH = PALETTE[0], PALETTE[1]
LONGEST = 18
"""Letters of a choice under its mark."""


def draw_history(plan: Plan, rows: Sequence[TrialRow], found: Sequence[Confirmed], path: Path) -> Path:
    """Trials in their order, the best so far as a line, and beside the best of them their mean on fresh seeds."""
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained", facecolor="white")
    axes = figure.subplots()
    known = [(row.number, row.value) for row in rows if row.value is not None]
    numbers, values = [number for number, _ in known], [value for _, value in known]
    axes.scatter(numbers, values, color=SEARCHED, s=18, label="a trial, on the seeds of the search")
    best = list(accumulate(values, min if plan.criterion.lowest else max))
    axes.step(numbers, best, color=SEARCHED, linewidth=1.0, alpha=0.5, where="post")
    _mark_pruned(axes, rows)
    _draw_fresh(axes, found)
    axes.set_xlim(-0.5, max((row.number for row in rows), default=0) + 0.75)  # marks at the foot are no data to it
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial")
    axes.set_ylabel(plan.criterion.name)
    axes.set_title("what a search saw, and what its best are worth on fresh seeds", fontsize=10)
    axes.grid(alpha=0.25)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return save_figure(figure, path)


def _mark_pruned(axes: Axes, rows: Sequence[TrialRow]) -> None:
    for state, mark in (("pruned", "|"), ("failed", "x")):
        if numbers := [row.number for row in rows if row.state == state]:
            look: dict[str, Any] = {"color": LEVEL, "s": 24, "marker": mark, "transform": axes.get_xaxis_transform()}
            axes.scatter(numbers, [0.02] * len(numbers), label=state, **look)


def _draw_fresh(axes: Axes, found: Sequence[Confirmed]) -> None:
    """With their intervals; the config itself as a level."""
    label = "on fresh seeds (mean, 95 % interval)"
    for one in found:
        estimate = one.estimate
        if not math.isfinite(estimate.value):
            continue
        if one.candidate.name == GIVEN:
            axes.axhline(estimate.value, color=LEVEL, linestyle="--", linewidth=1.2, label="as given, on fresh seeds")
            continue
        around = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
        bars = around if math.isfinite(estimate.low) else None
        place = int(one.candidate.name) + 0.25
        axes.errorbar([place], [estimate.value], yerr=bars, color=FRESH, marker="D", markersize=5, label=label)
        label = "_"  # once in the legend


def draw_slices(plan: Plan, rows: Sequence[TrialRow], found: Sequence[Confirmed], path: Path) -> Path:
    """A panel per setting: its value in each complete trial, and what came of it; those tried again are ringed."""
    dimensions = list(plan.dimensions.values())
    columns = min(len(dimensions), 3)
    lines = -(-len(dimensions) // columns)
    size = (3.6 * columns + 1.0 * (columns == 1), 2.8 * lines + 0.3)
    figure = Figure(figsize=size, dpi=130, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    again = {one.candidate.name for one in found}
    for panel, dimension in zip(panels, dimensions, strict=False):
        _draw_slice(panel, dimension, [row for row in rows if row.value is not None], again)
    for panel in panels[len(dimensions) :]:
        panel.set_visible(False)
    figure.supylabel(plan.criterion.name, fontsize=9)
    return save_figure(figure, path)


def _draw_slice(panel: Axes, dimension: Dimension, rows: Sequence[TrialRow], again: set[str]) -> None:
    words, values = [row.settings[dimension.key] for row in rows], [row.value or 0.0 for row in rows]
    ringed = [FRESH if str(row.number) in again else SEARCHED for row in rows]
    look: dict[str, Any] = {"color": SEARCHED, "edgecolors": ringed, "s": 28, "linewidths": 1.4}
    if isinstance(dimension.given, Choices):
        known = dimension.words()
        panel.scatter([known.index(word) for word in words], values, **look)
        panel.set_xticks(range(len(known)), _labels(known), fontsize=7, rotation=20)
    else:
        assert isinstance(dimension.given, Range)
        panel.scatter([float(word) for word in words], values, **look)
        panel.set_xscale("log" if dimension.given.log else "linear")
        panel.set_xlim(*_around(dimension.given))
        if dimension.given.log:
            panel.xaxis.set_minor_formatter(NullFormatter())
        else:
            panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.set_title(dimension.key, fontsize=9)
    panel.grid(alpha=0.25)
    panel.tick_params(labelsize=8)


def _around(given: Range) -> tuple[float, float]:
    """The whole range, and a little more for what lies at its ends."""
    if given.log:
        margin = (given.high / given.low) ** 0.04
        return given.low / margin, given.high * margin
    margin = 0.04 * (given.high - given.low)
    return given.low - margin, given.high + margin


def _labels(words: Sequence[str]) -> list[str]:
    """Short, and not alike: of long choices their beginnings, or their ends where those say more."""
    heads = [word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…" for word in words]
    tails = [word if len(word) <= LONGEST else f"…{word[1 - LONGEST :]}" for word in words]
    return heads if len(set(heads)) == len(heads) else tails
