"""Charts of a study: learning curves over updates and environment steps, and performance profiles."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.data.scores import normalized_score
from understudy.run.plots import AXES, HIGH, LOW, RETURN, STEPS, TITLES, UPDATES
from understudy.tools.experiments.results import SCORE
from understudy.tools.experiments.statistics import Band, band, profile_band
from understudy.tools.report import explanations
from understudy.tools.report.panels import CROWD, Array, Level, Line, Panel, cleaned, drawable, thinned, worth_drawing
from understudy.tools.report.reading import Entry, numbers
from understudy.tools.report.study import Study

MOST_POINTS = 28_000
"""In all curves of a page; each is drawn from evenly many of its evaluations."""
LEAST, MOST = 24, 240
"""Points of one curve."""
THRESHOLDS = 80
"""Scores at which a performance profile may step."""

Lines = Sequence[Mapping[str, Any]]


def metric_label(metric: str) -> str:
    return TITLES.get(metric, metric.removeprefix("eval/").replace("_", " ")).replace(" (mean, 95 % interval)", "")


def points_of_a_curve(study: Study) -> int:
    """So many that the page stays small: a method's curve and those of its seeds, over one axis or two."""
    curves = 2 * (len(study.entries) + 3 * len(study.methods) * len(study.tasks))
    return int(np.clip(MOST_POINTS // max(curves, 1), LEAST, MOST))


def learning_curves(study: Study) -> list[Panel]:
    """One chart per task, and per axis if every evaluation counts environment steps, too."""
    return worth_drawing([panel for task in study.tasks for panel in _of_task(study, task)])


def _of_task(study: Study, task: str) -> Iterator[Panel]:
    runs = [entry for entry in study.entries if entry.result.task == task and entry.result.evaluations]
    counted = bool(runs) and all(STEPS in line for entry in runs for line in entry.result.evaluations)
    most = points_of_a_curve(study)
    for axis in (STEPS, UPDATES) if counted else (UPDATES,):
        lines = [
            line
            for method in study.methods
            if (line := curve(method, study, study.of(method, task), axis, most)) is not None
        ]
        label = metric_label(study.metric)
        yield Panel(task, AXES[axis], label, tuple(lines), tuple(levels(study, task, runs)), axis)


def curve(method: str, study: Study, entries: Sequence[Entry], axis: str, most: int) -> Line | None:
    """A method's runs on one task as one line: the mean of its seeds with its interval, and the seeds themselves."""
    logs = [entry.result.evaluations for entry in entries]
    logs = [log for log in logs if len(numbers(log, axis, study.metric)[0])]
    seeds = [numbers(log, axis, study.metric) for log in logs]
    if not seeds:
        return None
    if len(seeds) == 1:
        x, y, low, high = one_run(logs[0], axis, study.metric, alone=not _seeded(study))
        kept = thinned(len(x), most)
        limits = (None, None) if low is None or high is None else (low[kept], high[kept])
        return Line(method, study.color(method), x[kept], y[kept], *limits)
    x, rows = aligned(seeds)
    kept = thinned(len(x), most)
    found = band(rows[:, kept])
    return Line(method, study.color(method), x[kept], found.middle, found.low, found.high, tuple(rows[:, kept]))


def one_run(log: Lines, axis: str, metric: str, *, alone: bool) -> tuple[Array, Array, Array | None, Array | None]:
    """A run with no other seed beside it: of its returns the interval over episodes, where no method has seeds, whose
    bands it would be taken for."""
    x, y = numbers(log, axis, metric)
    if metric == RETURN and alone:
        at, low, high = numbers(log, axis, LOW, HIGH)
        if np.array_equal(x, at) and (low < high).any():  # of one episode nothing is known of others
            return x, cleaned(y), cleaned(low), cleaned(high)
    return x, cleaned(y), None, None


def aligned(seeds: Sequence[tuple[Array, ...]]) -> tuple[Array, Array]:
    """Curves on one axis [n], each evaluation where it was made: values [S, n], NaN where a seed has none."""
    axis = np.unique(np.concatenate([x for x, _ in seeds]))
    rows = np.full((len(seeds), len(axis)), np.nan)
    for row, (x, y) in zip(rows, seeds, strict=True):
        row[np.searchsorted(axis, x)] = cleaned(y)
    return axis, rows


def levels(study: Study, task: str, entries: Sequence[Entry]) -> Iterator[Level]:
    """What a task's curves are compared with: the data's mean return, and published scores."""
    known = {data_value(entry, study.metric) for entry in entries}
    if len(known) == 1 and not math.isnan(value := known.pop()):
        yield Level("mean of the data", value)
    yield from published_levels(study, task)


def data_value(entry: Entry, metric: str) -> float:
    """What the data's mean return is in the number that runs are judged by, a return or a score; NaN where unknown."""
    mean = math.nan if entry.dataset is None else entry.dataset.return_mean
    env = entry.result.config.env
    if metric == RETURN or math.isnan(mean):
        return mean
    if metric != SCORE or env is None or env.reference is None:
        return math.nan
    try:
        return normalized_score(env.reference, mean)
    except UnderstudyError:  # of a run of another version
        return math.nan


def published_levels(study: Study, task: str) -> Iterator[Level]:
    """Scores that were published of a task, in the colour of the method they are of."""
    for one in study.published.get(task, ()):
        yield Level(f"{one.config}, {one.when}", one.mean, algorithm_color(study, one.algorithm))


def algorithm_color(study: Study, algorithm: str) -> int:
    """The colour of the only method of an algorithm."""
    methods = {run.method for run in study.results.runs if run.config.algorithm == algorithm}
    return study.color(methods.pop()) if len(methods) == 1 else -1


def profiles(study: Study) -> list[Panel]:
    """How large a share of runs is above each score, over the tasks that all methods have."""
    if not study.seeded or not study.comparable or len(study.compared) < 2:
        return []
    scores = {method: study.shared(method) for method in study.best_methods}
    every = drawable([seeds for tasks in scores.values() for seeds in tasks])
    if not every.max() > every.min():
        return []
    places = _thresholds(every)
    lines = [_profile(method, study, profile_band(tasks, places), places) for method, tasks in scores.items()]
    label = metric_label(study.metric)
    where = "below" if study.lowest_is_best else "above"
    what = f"{label.partition(' (')[0]} τ"
    return [Panel("Performance profiles", what, f"share of runs {where} τ", tuple(lines), y_limits=(0.0, 1.0))]


def _thresholds(every: Array) -> Array:
    """Just below every score and at it, so that steps are upright; and a little beyond."""
    known = np.unique(every)
    steps = known[thinned(len(known), THRESHOLDS)]
    room = 0.05 * (steps[-1] - steps[0])
    return np.sort(np.concatenate([[steps[0] - room], np.nextafter(steps, -np.inf), steps, [steps[-1] + room]]))


def _profile(method: str, study: Study, found: Band, places: Array) -> Line:
    x = -places if study.lowest_is_best else places
    order = x.argsort()
    known = bool(np.isfinite(found.low).all()) and len(study.best_methods) <= CROWD
    limits = (found.low[order], found.high[order]) if known else (None, None)
    return Line(method, study.color(method), x[order], found.middle[order], *limits)


def _uneven(study: Study) -> bool:
    """Whether some seed of a curve ends before another."""
    cells = (
        [
            entry
            for entry in study.entries
            if (entry.result.method, entry.result.task) == cell and entry.result.evaluations
        ]
        for cell in {(run.method, run.task) for run in study.results.runs}
    )
    return any(len({entry.result.evaluations[-1]["updates"] for entry in cell}) > 1 for cell in cells)


def _seeded(study: Study) -> bool:
    """Whether bands are over seeds."""
    return len({(run.method, run.task) for run in study.results.runs}) < len(study.entries)


def caption(study: Study) -> str:
    """What the lines of the learning curves are."""
    if _seeded(study):
        return explanations.SEEDED + (explanations.UNEVEN if _uneven(study) else "")
    if study.metric == RETURN:
        return explanations.EPISODES_ALONE
    return explanations.SEEDS_ALONE
