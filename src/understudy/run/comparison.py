"""Several runs in one picture: `understudy plot RUN…`, `us.plot([…])`, `run.plot()`.

Runs that differ in nothing but their seed are one curve: the mean of its seeds, with their range as a band.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np

from understudy.core.arguments import as_path, as_text, kind_of
from understudy.core.errors import ConfigError, RunError, did_you_mean
from understudy.run.config import RunConfig
from understudy.run.identity import deciding_settings
from understudy.run.lineage import Switch, lineage
from understudy.run.plots import (
    AXES,
    RETURN,
    TITLES,
    Points,
    common_axis,
    curve,
    data_level,
    draw_curves,
    draw_run,
    run_title,
    task_name,
)
from understudy.run.rundir import RunDir

SHORT = {"return": RETURN, "score": "eval/score", "success": "eval/success_rate", "length": "eval/length_mean"}
"""Names for those who do not want to type."""
USUAL = (RETURN, "eval/action_error", "eval/score")
"""What is compared if nothing else is asked for: the first that any run has."""
SETTLED = (
    "seed",
    "updates",
    "eval_every",
    "eval_episodes",
    "log_every",
    "save_every",
    "threads",
    "fingerprint",
    "init_fingerprint",
)
"""Settings that make no other curve."""
EPISODES = ("returns", "lengths")
"""What a line of an evaluation has of every episode."""
MOST_TOLD = 3
"""Differences that fit into a legend."""
Lines = list[dict[str, Any]]


@final
@dataclass(frozen=True)
class Picture:
    """A drawn picture; in a notebook it shows itself."""

    path: Path
    left_out: tuple[str, ...] = ()
    """Runs that have nothing of what was drawn."""

    def _repr_html_(self) -> str:
        content = base64.b64encode(self.path.read_bytes()).decode()
        return f'<img style="max-width: 100%" src="data:image/png;base64,{content}">'


@final
class Pictures(tuple[Picture, ...]):
    """Several of them, which show themselves, too."""

    def _repr_html_(self) -> str:
        return "".join(picture._repr_html_() for picture in self)


@final
@dataclass(frozen=True)
class Logged:
    """A run, its config and the lines of its logs that have the metric."""

    run: RunDir
    config: RunConfig
    lines: Lines


def plot(
    runs: "Sequence[PathLike[str] | str] | PathLike[str] | str", *, metric: str = "", out: Path | str = ""
) -> Pictures:
    """Draw runs: one of them with all it has, in its folder; several, or one `metric`, as curves in one picture.

    `metric`: return, score, success, length, or any name in metrics.jsonl or eval.jsonl (`loss/critic`).
    """
    if not isinstance(runs, (str, PathLike, Iterable)):
        raise ConfigError("plot", "not a run, nor several", got=kind_of(runs))
    paths = [runs] if isinstance(runs, (str, PathLike)) else list(runs)
    opened = [RunDir.open(path) for path in dict.fromkeys(as_path(path, "plot").resolve() for path in paths)]
    metric, out = as_text(metric, "metric"), out if isinstance(out, str) else as_path(out, "out")
    if not opened:
        raise ConfigError("plot", "no run to draw", expected="at least one")
    if len(opened) == 1 and not metric and not out:
        opened[0].check_contained()
        drawn = draw_run(opened[0])
        if not drawn:
            raise RunError(f"run '{opened[0].path}'", "has nothing to draw yet: a curve needs two logs or evaluations")
        return Pictures(map(Picture, drawn))
    return Pictures([compare(opened, metric, Path(out) if str(out) else Path("plot.png"))])


def compare(runs: Sequence[RunDir], metric: str, path: Path) -> Picture:
    """One metric of several runs as a picture."""
    if path.suffix != ".png":
        raise ConfigError("out", "no such kind of picture", got=path.name, expected=".png")
    switches: tuple[Switch, ...] = ()
    if len(runs) == 1:  # compared with others it is what it learned itself
        told = lineage(runs[0], runs[0].config)
        logs, switches = {runs[0].path: (told.evaluations, told.metrics)}, told.switches
    else:
        logs = {run.path: (run.evaluations(), run.metrics()) for run in runs}
    name = _chosen(metric, list(logs.values()))
    found = [Logged(run, run.config, _having(name, logs[run.path])) for run in runs]
    left_out = tuple(str(logged.run.path) for logged in found if not logged.lines)
    found = [logged for logged in found if logged.lines]
    axis = common_axis([logged.lines for logged in found])
    groups = grouped(found)
    curves = {label: _joined(group, name, axis) for label, group in groups.items()}
    curves = {label: points for label, points in curves.items() if len(points)}
    seeds = any(len(group) > 1 for group in groups.values())
    if seeds:  # a band means one thing in a picture
        curves = {label: _as_told(points, groups[label]) for label, points in curves.items()}
    if all(len(points) < 2 for points in curves.values()):
        raise RunError("plot", f"'{name}' has a single point in every run: there is no curve to draw")
    title = TITLES.get(name, name)
    if seeds:
        title = title.replace("(mean, 95 % interval)", "(mean)") + ", range of seeds"
    levels = _levels(found) if name == RETURN else {}
    return Picture(draw_curves(curves, path, axis, levels, _title(found), title, switches), left_out)


def _chosen(metric: str, logs: Sequence[tuple[Lines, Lines]]) -> str:
    """The name that is meant, which at least one run has."""
    known = {name for both in logs for lines in both for line in lines for name in line} - {*AXES, *EPISODES}
    wishes = (metric, SHORT.get(metric, metric), f"eval/{metric}") if metric else USUAL
    for name in wishes:
        if name in known:
            return name
    if metric:
        short = {short for short, name in SHORT.items() if name in known}
        raise ConfigError("metric", f"no run has '{metric}'", do=did_you_mean(metric, known | short))
    do = f"Name one: --metric {min(known)}." if known else "They have logged nothing yet."
    raise ConfigError("metric", "none of these runs was evaluated", do=do)


def _having(name: str, both: tuple[Lines, Lines]) -> Lines:
    return next((lines for lines in both if any(name in line for line in lines)), [])


def grouped(found: Sequence[Logged]) -> dict[str, list[Logged]]:
    """Runs by what they are called in the legend; those that differ only in their seed together."""
    groups: list[list[Logged]] = []
    settings: list[dict[str, Any]] = []
    for logged in found:
        mine = flat_settings(deciding_settings(logged.config))
        if mine in settings:
            groups[settings.index(mine)].append(logged)
        else:
            settings.append(mine)
            groups.append([logged])
    labels = _labels(groups, settings)
    return {label + _size(group): group for label, group in zip(labels, groups, strict=True)}


def _size(group: Sequence[Logged]) -> str:
    seeds = len({logged.config.seed for logged in group})
    return "" if len(group) == 1 else f" ({seeds} seeds)" if seeds == len(group) else f" ({len(group)} runs)"


def flat_settings(settings: Mapping[str, Any], without: Sequence[str] = SETTLED, prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, without, f"{prefix}{key}.")
        elif key not in without:
            flat[f"{prefix}{key}"] = value
    return flat


def _labels(groups: Sequence[Sequence[Logged]], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """By algorithm, by environment, by the few settings that differ, or by folder: the first that tells all apart."""
    configs = [group[0].config for group in groups]
    names = [config.algorithm for config in configs]
    tasks = [f"{config.algorithm} · {task_name(config)}" for config in configs]
    keys = sorted({key for one in settings for key in one if any(one[key] != other.get(key) for other in settings)})
    differing = [
        ", ".join(f"{key.rpartition('.')[2]}={one[key]}" for key in keys if key in one) or config.algorithm
        for one, config in zip(settings, configs, strict=True)
    ]
    folders = [_folder(group, [other for other in groups if other is not group]) for group in groups]
    for labels, fits in ((names, True), (tasks, True), (differing, len(keys) <= MOST_TOLD)):
        if fits and len(set(labels)) == len(labels):
            return labels
    return _shortened(folders)


def _folder(group: Sequence[Logged], others: Sequence[Sequence[Logged]]) -> str:
    """Where its seeds lie, if nothing else does; else where the first of them is."""
    first = group[0].run.path
    elsewhere = {logged.run.path.parent for other in others for logged in other}
    together = len(group) > 1 and {logged.run.path.parent for logged in group} == {first.parent}
    return str(first.parent if together and first.parent not in elsewhere else first)


def _shortened(folders: Sequence[str]) -> list[str]:
    """Without what all paths begin with."""
    parts = [Path(folder).parts for folder in folders]
    same = 0
    while all(len(part) > same + 1 for part in parts) and len({part[same] for part in parts}) == 1:
        same += 1
    return ["/".join(part[same:]) for part in parts]


def _joined(group: Sequence[Logged], name: str, axis: str) -> Points:
    """One run's curve; of several seeds the mean, and their range."""
    curves = [points for points in (curve(one.lines, name, axis) for one in group) if len(points)]
    if len(curves) <= 1:
        return curves[0] if curves else Points((), ())
    return mean_and_range(curves)


def _as_told(points: Points, group: Sequence[Logged]) -> Points:
    return points if len(group) > 1 else replace(points, low=(), high=())


def mean_and_range(curves: Sequence[Points]) -> Points:
    """Mean, smallest and largest of several curves at every x of any of them, over those that have come there."""
    places = np.array(sorted({x for one in curves for x in one.x}))
    rows = np.stack([np.interp(places, one.x, one.y, left=np.nan, right=np.nan) for one in curves])
    told = places, np.nanmean(rows, 0), np.nanmin(rows, 0), np.nanmax(rows, 0)
    return Points(*(tuple(column.tolist()) for column in told))


def _levels(found: Iterable[Logged]) -> dict[str, float]:
    """The data's mean return, if it is the same for all."""
    levels = [data_level(logged.run) for logged in found]
    same = all(
        one.keys() == other.keys() and np.allclose(list(one.values()), list(other.values()))
        for one, other in pairwise(levels)
    )
    return levels[0] if levels and same else {}


def _title(found: Sequence[Logged]) -> str:
    if len(found) == 1:
        return run_title(found[0].config)
    tasks = dict.fromkeys(task_name(logged.config) for logged in found)
    return " · ".join(tasks) if len(tasks) <= MOST_TOLD else f"{len(tasks)} tasks"
