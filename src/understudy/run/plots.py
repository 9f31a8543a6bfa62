"""Pictures of a run, made from its logs alone."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from understudy.core.files import write_bytes
from understudy.run.logs import EVALUATION, HELD_OUT
from understudy.run.rundir import RunDir

TERMS = "terms/"
"""What environments told of their rewards."""
PALETTE = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def draw_run(run: RunDir) -> list[Path]:
    """eval_returns.png, losses.png and, where there are any, reward_terms.png of one run; returns what was drawn."""
    drawn = []
    evaluations = run.evaluations(EVALUATION if run.config.env is not None else HELD_OUT)
    if evaluations and run.config.env is None:
        names = [name for name in evaluations[-1] if name.startswith("eval/")]
        drawn.append(_draw_panels(evaluations, names, run.plots / "held_out.png"))
    elif evaluations:
        drawn.append(draw_returns({run.path.name: evaluations}, run.plots / "eval_returns.png"))
    metrics = run.metrics()
    if metrics:
        names = list(dict.fromkeys(name for line in metrics for name in line if name != "updates"))
        terms = [name for name in names if name.startswith(TERMS)]
        others = [name for name in names if name not in terms]
        drawn.append(_draw_panels(metrics, others, run.plots / "losses.png"))
        if terms:
            drawn.append(_draw_panels(metrics, terms, run.plots / "reward_terms.png"))
    return drawn


def draw_returns(
    curves: Mapping[str, list[dict[str, Any]]], path: Path, levels: Mapping[str, float] | None = None
) -> Path:
    """Mean return with its interval over updates, one curve per name, and dashed levels to compare with."""
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes: Axes = figure.subplots()
    for color, (name, lines) in zip(PALETTE * len(curves), curves.items(), strict=False):
        updates = [line["updates"] for line in lines]
        axes.plot(updates, [line["eval/return_mean"] for line in lines], color=color, label=name, marker=".")
        low, high = [line["eval/return_low"] for line in lines], [line["eval/return_high"] for line in lines]
        axes.fill_between(updates, low, high, color=color, alpha=0.15, linewidth=0)
    for name, level in (levels or {}).items():
        axes.axhline(level, color="#718096", linestyle="--", linewidth=1.2, label=name)
    axes.set_xlabel("updates")
    axes.set_ylabel("episode return (mean, 95 % interval)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return save_figure(figure, path)


def _draw_panels(metrics: list[dict[str, Any]], names: list[str], path: Path) -> Path:
    rows = (len(names) + 2) // 3
    figure = Figure(figsize=(10.5, 2.4 * rows), dpi=120, layout="constrained")
    panels = figure.subplots(rows, 3, squeeze=False).flatten()
    for panel, name in zip(panels, names, strict=False):
        lines = [line for line in metrics if name in line]  # a delayed actor has no loss at some logs
        panel.plot([line["updates"] for line in lines], [line[name] for line in lines], color=PALETTE[0], linewidth=1.2)
        panel.set_title(name, fontsize=9)
        panel.grid(alpha=0.25)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> Path:
    """As a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    write_bytes(path, picture.getvalue())
    return path
