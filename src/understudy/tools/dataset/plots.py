"""Pictures of a dataset: histograms of returns, lengths, rewards and every action dimension on one page."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.episode import Array
from understudy.run.plots import PALETTE, save_figure
from understudy.tools.dataset.action_tally import BoxActions, DiscreteActions
from understudy.tools.dataset.column_tally import LARGEST
from understudy.tools.dataset.survey import Survey

ACROSS = 4
MOST_DIMENSIONS = 12
BINS = 40


def draw_survey(survey: Survey, path: Path) -> Path:
    """Draw to a .png. Actions and rewards are those of the survey's sample; dashed lines are declared bounds."""
    if path.suffix != ".png":
        raise DataError(f"--plot {path}", "unknown kind of picture", got=path.suffix or "no suffix", expected=".png")
    if survey.episodes == 0:
        raise DataError(f"dataset '{survey.name}'", "has no whole episode: there is nothing to draw")
    shown = min(_dimensions(survey), MOST_DIMENSIONS)
    down = 1 + -(-shown // ACROSS)
    figure = Figure(figsize=(3.0 * ACROSS, 2.4 * down), dpi=120)
    panels = figure.subplots(down, ACROSS, squeeze=False)
    figure.subplots_adjust(0.05, 0.08 / down, 0.98, 1 - 0.24 / down, 0.25, 0.35)
    _draw_episodes(survey, list(panels[0]))
    spare = list(panels[1:].flatten())
    _draw_actions(survey, spare[:shown])
    for panel in spare[shown:]:
        panel.set_visible(False)
    figure.suptitle(f"{survey.name}: {survey.episodes:,} episodes, {survey.steps:,} steps", fontsize=10)
    return save_figure(figure, path)


def draw_levels(returns: Mapping[str, NDArray[np.float64]], path: Path, title: str) -> Path:
    """The returns of several datasets, a histogram each on one axis, with their means."""
    figure = Figure(figsize=(7.0, 1.2 * len(returns) + 0.8), dpi=120)
    panels = figure.subplots(len(returns), 1, sharex=True, squeeze=False)[:, 0]
    every = np.concatenate(list(returns.values()))
    room = max(0.5, 0.02 * float(every.max() - every.min()))
    extent = float(every.min()) - room, float(every.max()) + room
    for number, (panel, (name, values)) in enumerate(zip(panels, returns.items(), strict=True)):
        weights = np.full(len(values), 1 / len(values))
        panel.hist(
            values, BINS, range=extent, weights=weights, color=PALETTE[number % len(PALETTE)], histtype="stepfilled"
        )
        panel.axvline(float(values.mean()), color="#1a202c", linewidth=1, linestyle="--")
        panel.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
        panel.set_yticks([])
        panel.tick_params(labelsize=7)
        panel.grid(axis="x", alpha=0.25)
    panels[-1].set_xlabel("episode return (dashed: mean)", fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    return save_figure(figure, path)


def _dimensions(survey: Survey) -> int:
    if isinstance(survey.actions, DiscreteActions):
        return 1
    action = survey.columns["action"]
    return len(action.minimum)


def _draw_episodes(survey: Survey, panels: list[Axes]) -> None:
    returns, lengths, rewards, order = panels
    _histogram(returns, survey.returns, "episode return", PALETTE[0])
    _histogram(lengths, survey.lengths, "episode length", PALETTE[2])
    _histogram(rewards, survey.sample["reward"], "reward", PALETTE[1])
    order.plot(survey.numbers, survey.returns, ".", color=PALETTE[0], markersize=3, alpha=0.6)
    _dress(order, "return, in the order recorded")


def _draw_actions(survey: Survey, panels: list[Axes]) -> None:
    actions = survey.actions
    if isinstance(actions, DiscreteActions):
        panels[0].bar(list(actions.counts), list(actions.counts.values()), color=PALETTE[3])
        _dress(panels[0], "action")
        return
    sample = survey.sample["action"].reshape(len(survey.sample["action"]), -1)
    for dimension, panel in enumerate(panels):
        _histogram(panel, sample[:, dimension], f"action {dimension}", PALETTE[3])
        if isinstance(actions, BoxActions) and actions.declared:
            for bound in (actions.low[dimension], actions.high[dimension]):
                panel.axvline(bound, color="#718096", linestyle="--", linewidth=1)


def _histogram(panel: Axes, values: Array, title: str, color: str) -> None:
    finite = np.asarray(values, np.float64)
    finite = finite[np.abs(finite) <= LARGEST]
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
        room = max(1e-6, 1e-6 * max(abs(low), abs(high)))
        extent = (low, high) if high - low > room else (low - 0.5, high + 0.5)
        panel.hist(finite, bins=BINS, range=extent, color=color, histtype="stepfilled")
    _dress(panel, title)


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, fontsize=9)
    panel.ticklabel_format(useOffset=False)
    panel.tick_params(labelsize=7)
    panel.grid(alpha=0.25)
