"""Pictures of runs, made from their logs alone: of one run while it trains and when it has ended, and of several.

Every panel has a title, an axis with its unit and at least two points. Runs that play for themselves are drawn over
steps of environments, those that learn from data over updates, with the data's mean return as a line. A run that
started from others is drawn with them, as one curve, and where it began is marked: over updates if those learned from
data, which is all that both count, with its environment steps above.
"""

import io
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from understudy.core.errors import UnderstudyError
from understudy.core.files import read_json, write_bytes
from understudy.run.config import RunConfig
from understudy.run.lineage import Switch, lineage
from understudy.run.rundir import RunDir
from understudy.run.style_levels import STYLE, drawn_names, style_levels

TERMS = "terms/"
"""What environments told of their rewards."""
PALETTE = ("#2b6cb0", "#dd6b20", "#2f855a", "#c53030", "#6b46c1", "#0bc5ea", "#b83280", "#975a16", "#4a5568", "#84cc16")
STYLES = ("-", "--", ":", "-.")
LEVEL = "#718096"
"""Of lines to compare with."""
FIRST_DRAWING = 15.0
"""Seconds until a run that trains is drawn for the first time, and between two drawings."""
SHARE_OF_TIME = 50.0
"""A drawing is not repeated before so many times as long as it took."""
STEPS, UPDATES = "env_steps", "updates"
MOST_COUNTS = 5
"""Environment steps that are written above a panel."""
AXES = {STEPS: "environment steps", UPDATES: "updates"}
RETURN, LOW, HIGH = "eval/return_mean", "eval/return_low", "eval/return_high"
TITLES = {
    RETURN: "episode return (mean, 95 % interval)",
    "eval/score": "score (0 random, 100 expert)",
    "eval/success_rate": "success rate",
    "eval/length_mean": "episode length (steps)",
}
"""What an evaluation's numbers are called; all others by their names."""
SPREADS = ("eval/return_std", LOW, HIGH, "eval/score_std", "eval/length_std")
"""Numbers that belong to others."""


@final
@dataclass(frozen=True)
class Points:
    """Points with finite numbers, in the order of x; `low` and `high` where there is a band around them."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.x)


@final
class SparinglyDrawn(AbstractContextManager[None]):
    """Draws while a run trains: not in its first seconds, and then for about a fiftieth of its time at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + FIRST_DRAWING
        self._began = 0.0

    @property
    def due(self) -> bool:
        return self._clock() >= self._next

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """What failed is drawn, or fails aloud, at the end."""
        now = self._clock()
        self._next = now + max(FIRST_DRAWING, SHARE_OF_TIME * (now - self._began))
        return isinstance(error, (UnderstudyError, OSError))


def draw_run(run: RunDir) -> list[Path]:
    """eval_returns.png (held_out.png of one without an environment), losses.png and, where there are any,
    style.png and reward_terms.png of one run; returns what was drawn."""
    config = run.config
    told = lineage(run, config)
    title, evaluated = run_title(config), "eval_returns.png" if config.env is not None else "held_out.png"
    metrics, switches = told.metrics, told.switches
    drawn = _draw_evaluations(told.evaluations, run.plots / evaluated, title, data_level(run), switches)
    names = list(dict.fromkeys(name for line in metrics for name in line if name not in AXES))
    terms = [name for name in names if name.startswith(TERMS)]
    others = [name for name in names if not name.startswith((TERMS, STYLE))]
    drawn += _draw_panels(metrics, others, run.plots / "losses.png", title, switches)
    drawn += _draw_panels(
        metrics, drawn_names(names), run.plots / "style.png", title, switches, style_levels(config, metrics)
    )
    return drawn + _draw_panels(metrics, terms, run.plots / "reward_terms.png", title, switches)


def run_title(config: RunConfig) -> str:
    """Algorithm, environment or data, and seed."""
    return f"{config.algorithm} · {task_name(config)} · seed {config.seed}"


def task_name(config: RunConfig) -> str:
    """The environment; of a run without one its data."""
    if config.env is not None:
        return config.env.id
    return Path(config.data.path).name if config.data is not None and config.data.path else "data"


def data_level(run: RunDir) -> dict[str, float]:
    """The mean return of the data that was learned from, where it is known."""
    try:
        told = read_json(run.meta_file).get("dataset")
    except UnderstudyError:
        return {}
    level = as_float(told.get("return_mean")) if isinstance(told, dict) else math.nan
    return {"mean of the data": level} if math.isfinite(level) else {}


def curve(lines: Iterable[Mapping[str, Any]], name: str, axis: str = UPDATES) -> Points:
    """One number over updates or environment steps; of returns with their interval."""
    banded = name == RETURN
    wanted = (axis, name, *((LOW, HIGH) if banded else ()))
    rows = [[as_float(line.get(key)) for key in wanted] for line in lines]
    kept = sorted((row for row in rows if all(map(math.isfinite, row))), key=lambda row: row[0])
    columns = [tuple(column) for column in zip(*kept, strict=True)] or [()] * len(wanted)
    return Points(*columns)


def as_float(value: Any) -> float:
    """NaN for what is none; a log may hold numbers that no float holds."""
    try:
        return float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        return math.nan


def common_axis(logs: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """Environment steps where every line counts them, else updates."""
    return STEPS if all(lines and all(STEPS in line for line in lines) for lines in logs) else UPDATES


def draw_returns(
    curves: Mapping[str, list[dict[str, Any]]],
    path: Path,
    levels: Mapping[str, float] | None = None,
    title: str = "",
) -> Path:
    """Mean return with its interval, one curve per name, and dashed levels to compare with."""
    axis = common_axis(curves.values())
    return draw_curves({name: curve(lines, RETURN, axis) for name, lines in curves.items()}, path, axis, levels, title)


def draw_curves(
    curves: Mapping[str, Points],
    path: Path,
    axis: str = UPDATES,
    levels: Mapping[str, float] | None = None,
    title: str = "",
    label: str = TITLES[RETURN],
    switches: Sequence[Switch] = (),
) -> Path:
    """Some curves in one panel."""
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained", facecolor="white")
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        _plot(axes, points, PALETTE[number % len(PALETTE)], STYLES[number // len(PALETTE) % len(STYLES)], name)
    _finish(axes, AXES[axis], levels or {})
    _mark(axes, switches, axis)
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    many = len(curves) > 6
    axes.legend(frameon=False, fontsize=7 if many else 9, ncols=2 if many else 1)
    return save_figure(figure, path)


def _plot(axes: Axes, points: Points, color: str, style: str, name: str = "") -> None:
    axes.plot(points.x, points.y, color=color, linestyle=style, label=name or None, marker=".", linewidth=1.4)
    if points.low:
        axes.fill_between(points.x, points.low, points.high, color=color, alpha=0.15, linewidth=0)


def _finish(axes: Axes, label: str, levels: Mapping[str, float]) -> None:
    for name, level in levels.items():
        axes.axhline(level, color=LEVEL, linestyle="--", linewidth=1.2, label=name)
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)


def _mark(axes: Axes, switches: Sequence[Switch], axis: str, *, named: bool = True) -> None:
    """Where a run began that started from the one before."""
    for switch in switches:
        axes.axvline(switch.at[axis], color=LEVEL, linestyle=":", linewidth=1.2)
        if named:
            look: dict[str, Any] = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 8, "color": LEVEL}
            axes.annotate(f"{switch.name} →", (switch.at[axis], 0), xycoords=("data", "axes fraction"), **look)


def _count_steps(axes: Axes, lines: Sequence[Mapping[str, Any]]) -> None:
    """Above a panel over updates, the environment steps behind some of them."""
    counted = [(line[UPDATES], line[STEPS]) for line in lines if STEPS in line and UPDATES in line]
    if not counted:
        return
    shown = counted[:: -(-len(counted) // MOST_COUNTS)]
    above = axes.twiny()
    above.set_xlim(axes.get_xlim())
    above.set_xticks([updates for updates, _ in shown], [EngFormatter(sep="")(steps) for _, steps in shown], fontsize=8)
    above.set_xlabel(AXES[STEPS], fontsize=8)


def _draw_evaluations(
    lines: list[dict[str, Any]],
    path: Path,
    title: str,
    levels: Mapping[str, float],
    switches: Sequence[Switch] = (),
) -> list[Path]:
    """Returns, and beside them score, success and whatever else evaluations told and did not keep constant."""
    axis = common_axis([lines])
    names = [RETURN, *(name for name in dict.fromkeys(name for line in lines for name in line) if _is_told(name))]
    curves = {name: curve(lines, name, axis) for name in names}
    kept = {name: points for name, points in curves.items() if _is_worth_it(name, points)}
    if not kept:
        return _draw_episodes(lines, path, title, levels)
    columns = min(len(kept), 3)
    rows = -(-len(kept) // columns)
    size = (7.2, 4.2) if len(kept) == 1 else (4.6 * columns, 3.4 * rows)
    figure = Figure(figsize=size, dpi=130, layout="constrained", facecolor="white")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for number, (panel, (name, points)) in enumerate(zip(panels, kept.items(), strict=False)):
        _plot(panel, points, PALETTE[number % len(PALETTE)], "-")
        _finish(panel, AXES[axis], levels if name == RETURN else {})
        _mark(panel, switches, axis)
        if switches and axis == UPDATES:
            _count_steps(panel, lines)
        panel.set_title(TITLES.get(name, name.removeprefix("eval/")), fontsize=10)
        if name == "eval/success_rate":
            panel.set_ylim(-0.03, 1.03)
        if name == RETURN and levels:
            panel.legend(frameon=False, fontsize=8)
    for panel in panels[len(kept) :]:
        panel.set_visible(False)
    if len(kept) == 1:
        panels[0].set_title(title, fontsize=11)
        panels[0].set_ylabel(TITLES.get(next(iter(kept)), next(iter(kept)).removeprefix("eval/")))
    else:
        figure.suptitle(title, fontsize=11)
    return [save_figure(figure, path)]


def _is_told(name: str) -> bool:
    return name.startswith("eval/") and name != RETURN and name not in SPREADS


def _is_worth_it(name: str, points: Points) -> bool:
    """A curve of at least two points, and of lengths only if they differ."""
    return len(points) > 1 and (name != "eval/length_mean" or len(set(points.y)) > 1)


def _draw_episodes(lines: list[dict[str, Any]], path: Path, title: str, levels: Mapping[str, float]) -> list[Path]:
    """Of a single evaluation every episode's return, sorted."""
    told = lines[-1].get("returns") if lines else None
    returns = sorted(filter(math.isfinite, map(as_float, told))) if isinstance(told, list) else []
    if not returns:
        return []
    points = Points(tuple(range(1, len(returns) + 1)), tuple(returns))
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.scatter(points.x, points.y, color=PALETTE[0], s=18)
    mean = {f"mean of {len(returns)} episodes": sum(returns) / len(returns)}
    axes.axhline(next(iter(mean.values())), color=PALETTE[0], linewidth=1.2, label=next(iter(mean)))
    _finish(axes, "episodes of the only evaluation, by their return", levels)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("episode return")
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    return [save_figure(figure, path)]


def _draw_panels(
    lines: list[dict[str, Any]],
    names: list[str],
    path: Path,
    title: str,
    switches: Sequence[Switch] = (),
    levels: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Path]:
    """A panel for every name that has at least two points and is not always 0, losses first, a colour per group;
    `levels` by name are lines to compare with."""
    axis = common_axis([lines])
    curves = {name: curve(lines, name, axis) for name in names}
    groups = list(dict.fromkeys(["loss", *(name.partition("/")[0] for name in names)]))
    kept = {name: points for name, points in curves.items() if len(points) > 1 and any(points.y)}
    kept = dict(sorted(kept.items(), key=lambda item: groups.index(item[0].partition("/")[0])))
    if not kept:
        return []
    columns = min(len(kept), 3)
    rows = -(-len(kept) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.5 * rows + 0.3), dpi=120, layout="constrained", facecolor="white")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, (name, points) in zip(panels, kept.items(), strict=False):
        color = PALETTE[groups.index(name.partition("/")[0]) % len(PALETTE)]
        panel.plot(points.x, points.y, color=color, linewidth=1.2)
        for label, level in (levels or {}).get(name, {}).items():
            panel.axhline(level, color=LEVEL, linestyle="--", linewidth=1.0, label=label)
            panel.legend(frameon=False, fontsize=7)
        _mark(panel, switches, axis, named=False)
        panel.set_title(name, fontsize=9)
        panel.grid(alpha=0.25)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.tick_params(labelsize=8)
    for panel in panels[len(kept) :]:
        panel.set_visible(False)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel(AXES[axis], fontsize=9)
    return [save_figure(figure, path)]


def save_figure(figure: Figure, path: Path) -> Path:
    """As a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    write_bytes(path, picture.getvalue())
    return path
