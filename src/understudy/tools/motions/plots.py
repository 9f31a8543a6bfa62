"""A picture of motions: the first clip's joints over time, its way from above, its height and its speed."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.run.plots import PALETTE, STYLES, save_figure
from understudy.tools.motions.survey import MotionSurvey

ACROSS = 3
TOGETHER = 4
"""Joints in a panel."""
MOST_PANELS = 9


def draw_motions(survey: MotionSurvey, path: Path) -> Path:
    """Draw to a .png."""
    if path.suffix != ".png":
        raise DataError(f"--plot {path}", "unknown kind of picture", got=path.suffix or "no suffix", expected=".png")
    curves = _curves(survey)
    groups = [curves[first : first + TOGETHER] for first in range(0, len(curves), TOGETHER)][:MOST_PANELS]
    rooted = "root_position" in survey.sample
    down = -(-len(groups) // ACROSS) + rooted
    figure = Figure(figsize=(4.0 * ACROSS, 2.6 * down), dpi=120, layout="constrained")
    panels = figure.subplots(down, ACROSS, squeeze=False)
    if rooted:
        _draw_root(survey, list(panels[0]))
    spare = list(panels[int(rooted) :].flatten())
    for panel, group in zip(spare, groups, strict=False):
        _draw_curves(panel, group, survey)
    for panel in spare[len(groups) :]:
        panel.set_visible(False)
    first = survey.clips[0]
    more = f", the first of {len(survey.clips):,} clips" if len(survey.clips) > 1 else ""
    figure.suptitle(f"{Path(survey.path).name}: {first.name}, {first.frames:,} frames{more}", fontsize=10)
    return save_figure(figure, path)


def _curves(survey: MotionSurvey) -> list[tuple[str, NDArray[np.float64]]]:
    """Joints, or where there are none the first flat channel's numbers."""
    channel = "joint_positions" if "joint_positions" in survey.sample else next(iter(survey.channels))
    values = survey.sample[channel].numpy().astype(np.float64)
    return [(name, values[:, number]) for number, name in enumerate(survey.channels[channel])]


def _times(survey: MotionSurvey, frames: int) -> tuple[NDArray[np.float64], str]:
    step = float(survey.sample["step"])
    known = np.isfinite(step)
    return np.arange(frames, dtype=np.float64) * (step if known else 1.0), "seconds" if known else "frames"


def _draw_curves(panel: Axes, group: list[tuple[str, NDArray[np.float64]]], survey: MotionSurvey) -> None:
    times, unit = _times(survey, len(group[0][1]))
    for number, (name, values) in enumerate(group):
        panel.plot(times, values, STYLES[number % len(STYLES)], color=PALETTE[number], linewidth=1, label=name)
    panel.legend(fontsize=6, loc="best")
    _dress(panel, "joint positions (rad)" if survey.joints else "numbers", unit)


def _draw_root(survey: MotionSurvey, panels: list[Axes]) -> None:
    place = survey.sample["root_position"].numpy()
    times, unit = _times(survey, len(place))
    panels[0].plot(place[:, 0], place[:, 1], color=PALETTE[0], linewidth=1)
    panels[0].plot(place[:1, 0], place[:1, 1], "o", color=PALETTE[2], markersize=4, label="start")
    panels[0].legend(fontsize=6)
    panels[0].set_aspect("equal", adjustable="datalim")
    _dress(panels[0], "way of the root, from above (m)", "x")
    panels[1].plot(times, place[:, 2], color=PALETTE[1], linewidth=1)
    _dress(panels[1], "height of the root (m)", unit)
    if "root_linear_velocity" in survey.sample:
        speed = survey.sample["root_linear_velocity"][:, :2].norm(dim=1).numpy()
        panels[2].plot(times, speed, color=PALETTE[3], linewidth=1)
        _dress(panels[2], "speed over the ground (m/s)", unit)
    else:
        panels[2].set_visible(False)


def _dress(panel: Axes, title: str, unit: str) -> None:
    panel.set_title(title, fontsize=9)
    panel.set_xlabel(unit, fontsize=7)
    panel.tick_params(labelsize=7)
    panel.grid(alpha=0.25)
