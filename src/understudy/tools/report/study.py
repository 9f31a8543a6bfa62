"""What is compared with what: runs by method and task, each seed once, and never two experiments under one name."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, RunError, did_you_mean
from understudy.core.wording import counted
from understudy.run.comparison import SHORT, flat_settings
from understudy.run.config import RunConfig, read_config
from understudy.run.identity import deciding_settings
from understudy.run.suites import suites
from understudy.tools.experiments.forecast import Forecast, forecast
from understudy.tools.experiments.planned_looks import planned_looks
from understudy.tools.experiments.results import SCORE, SEED_OWN, Result, Results, lowest_is_best
from understudy.tools.experiments.sequential import Decisions, Design, decide
from understudy.tools.experiments.statistics import Estimate, interval, mean
from understudy.tools.report.markup import decimals, shortened
from understudy.tools.report.panels import LARGEST
from understudy.tools.report.reading import Damaged, Entry, Gathered

MOST_COMPARED = 12
"""Methods that are compared pair by pair."""
MOST_NAMED = 2
"""Settings that fit into a name."""
LONGEST_NAME = 80
LISTED = 4
Values = tuple[str, ...]
Table = dict[str, dict[str, NDArray[np.float64]]]
"""Method → task → one number per seed."""


@final
@dataclass(frozen=True)
class Published:
    """What a preset's source reached on a task, at the end of its own training: mean and standard deviation over its
    seeds."""

    config: str
    algorithm: str
    source: str
    updates: int
    """Its training was so long, which may be longer than that of the runs beside it."""
    mean: float
    deviation: float

    @property
    def when(self) -> str:
        return f"published after {self.updates:,} updates"


@final
@dataclass(frozen=True)
class Study:
    """Everything a page is made from."""

    entries: list[Entry]
    damaged: list[Damaged]
    metric: str
    notes: list[str]
    """What a reader has to know before any number."""

    @cached_property
    def results(self) -> Results:
        return Results([entry.result for entry in self.entries])

    @cached_property
    def methods(self) -> list[str]:
        return self.results.methods

    @cached_property
    def tasks(self) -> list[str]:
        return self.results.tasks

    def color(self, method: str) -> int:
        """The number of a method, which is its colour in every chart."""
        return self.methods.index(method)

    def of(self, method: str, task: str) -> list[Entry]:
        """The seeds of one cell."""
        found = [entry for entry in self.entries if (entry.result.method, entry.result.task) == (method, task)]
        return sorted(found, key=lambda entry: entry.result.seed)

    @cached_property
    def lowest_is_best(self) -> bool:
        return any(lowest_is_best(run.config, self.metric) for run in self.results.runs)

    @cached_property
    def preliminary(self) -> bool:
        """Whether some cell has nothing that is finished: then numbers are of whatever was measured so far."""
        cells = {(run.method, run.task) for run in self.results.runs}
        return cells != {(run.method, run.task) for run in self.results.runs if run.state == "finished"}

    @cached_property
    def last(self) -> Table:
        """Of the last evaluation."""
        return _finite(self.results.scores(self.metric, finished=not self.preliminary))

    @cached_property
    def best(self) -> Table:
        """Of the best of all evaluations."""
        return _finite(self.results.scores(self.metric, Result.best, finished=not self.preliminary))

    @cached_property
    def estimates(self) -> dict[tuple[str, str], Estimate]:
        """Mean over seeds with its interval, of every cell with a number."""
        cells = ((method, task, self.last[method][task]) for method in self.methods for task in self.tasks)
        return {(method, task): interval(mean, [seeds]) for method, task, seeds in cells if len(seeds)}

    def places(self, task: str) -> int | None:
        """Digits after the point of a task's numbers."""
        known = [one for (_, where), one in self.estimates.items() if where == task]
        return decimals(value for one in known for value in (one.value, one.low, one.high))

    def leads(self, cell: tuple[str, str]) -> bool:
        """Whether a method has the best mean of a task on which seeds are compared, not single runs."""
        found = {method: one for (method, task), one in self.estimates.items() if task == cell[1]}
        alone = len(found) < 2 or all(math.isnan(one.low) for one in found.values())
        sign = -1.0 if self.lowest_is_best else 1.0
        return not alone and sign * found[cell[0]].value == max(sign * one.value for one in found.values())

    @cached_property
    def seeded(self) -> bool:
        """Whether there is more than one seed to compare: of single runs no distribution is known."""
        scores = [self.last[method][task] for method in self.compared for task in self.shared_tasks]
        return any(len(seeds) > 1 for seeds in scores)

    @cached_property
    def compared(self) -> list[str]:
        """Methods that have a number: one that has none yet holds up nobody."""
        return [method for method in self.methods if any(map(len, self.last[method].values()))]

    @cached_property
    def shared_tasks(self) -> list[str]:
        """Tasks on which all of them have one: what can be summed up over."""
        return [task for task in self.tasks if all(len(self.last[method][task]) for method in self.compared)]

    @cached_property
    def best_methods(self) -> list[str]:
        """Those that are compared pair by pair: all, or of many those with the best means over the shared tasks."""
        if len(self.compared) <= MOST_COMPARED or not self.shared_tasks:
            return self.compared
        ranked = sorted(self.compared, key=lambda method: -mean(self.shared(method)))
        return [method for method in self.compared if method in ranked[:MOST_COMPARED]]

    @cached_property
    def shared_scores(self) -> Table:
        """What decides."""
        return {method: {task: self.last[method][task] for task in self.shared_tasks} for method in self.compared}

    @cached_property
    def looks(self) -> Design | None:
        """How these runs were to be looked at, where seeds were added until it was decided."""
        folders = {experiment_folder(entry) for entry in self.entries}
        return planned_looks(folders.pop()) if len(folders) == 1 else None

    @cached_property
    def decisions(self) -> Decisions | None:
        """Which of all pairs one permutation test tells apart; None where some method has one seed somewhere."""
        scores = self.shared_scores
        fewest = min((len(seeds) for cells in scores.values() for seeds in cells.values()), default=0)
        if len(scores) < 2 or fewest < 2:
            return None
        design = self.looks or Design(group=fewest, looks=1, by_spread=not self.comparable)
        return decide(scores, design, lowest_is_best=self.lowest_is_best)

    @cached_property
    def forecasts(self) -> Sequence[Forecast]:
        """Of pairs that a further look may tell apart."""
        return [] if self.looks is None or self.decisions is None else forecast(self.shared_scores, self.looks)

    @property
    def comparable(self) -> bool:
        """Whether numbers of different tasks are on one scale."""
        return len(self.tasks) == 1 or self.metric == SCORE or self.metric.endswith("_rate")

    def shared(self, method: str) -> list[NDArray[np.float64]]:
        """A method's scores on the shared tasks, higher being better."""
        sign = -1.0 if self.lowest_is_best else 1.0
        return [sign * self.last[method][task] for task in self.shared_tasks]

    @cached_property
    def published(self) -> dict[str, list[Published]]:
        """By task, for the algorithms that are here; scores only."""
        named = {run.config.task for run in self.results.runs if run.config.task}
        algorithms = {run.config.algorithm for run in self.results.runs}
        found: dict[str, list[Published]] = defaultdict(list)
        for suite in suites() if named and self.metric == SCORE else ():
            for algorithm, presets in suite.presets.items():
                for config in presets if algorithm in algorithms else ():
                    for task, numbers in suite.published.get(config, {}).items():
                        if task in named:
                            updates = int(read_config(config)[0]["updates"])
                            found[task].append(Published(config, algorithm, presets[config], updates, *numbers))
        return dict(found)


def experiment_folder(entry: Entry) -> Path:
    """Of <experiment>/<method>/<task>/<seed>."""
    return entry.path.absolute().parent.parent.parent


def study(gathered: Gathered, metric: str = "") -> Study:
    """Runs as they are compared; `metric` is what they are judged by, their own if none is named."""
    if not gathered.entries:
        told = "; ".join(f"'{one.shown}': {one.reason}" for one in gathered.damaged[:LISTED])
        raise RunError("report", f"no run here can be read: {told}")
    entries, notes = _told_apart(gathered.entries)
    entries, repeated = _each_seed_once(entries)
    notes += repeated
    chosen = _metric([entry.result for entry in entries], metric)
    found = Study(entries, gathered.damaged, chosen, notes)
    found.notes.extend(_standing(found))
    return found


def _metric(runs: Sequence[Result], metric: str) -> str:
    if not metric:
        return Results(runs).common_metric()
    known = {name for run in runs for line in run.evaluations[-1:] for name in line if name.startswith("eval/")}
    for name in (metric, SHORT.get(metric, metric), f"eval/{metric}"):
        if name in known:
            return name
    short = {short for short, name in SHORT.items() if name in known}
    raise ConfigError("metric", f"no run has '{shortened(metric)}'", do=did_you_mean(metric, known | short))


def experiment_settings(config: RunConfig) -> dict[str, Any]:
    """What makes an experiment, dotted: all but seed, place and name."""
    own = {key: value for key, value in deciding_settings(config).items() if key not in SEED_OWN}
    return flat_settings({**own, "updates": config.updates}, ())


def _told_apart(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Runs of one method and task with different settings get names that say in what they differ."""
    cells: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        cells[entry.result.method, entry.result.task].setdefault(entry.result.experiment, entry)
    differing: dict[str, list[str]] = {}
    for (method, _), experiments in cells.items():
        settings = [experiment_settings(entry.result.config) for entry in experiments.values()]
        keys = differing.setdefault(method, [])
        keys += [key for key in differing_keys(settings) if key not in keys]
    names: dict[tuple[str, Values], str] = {}
    taken: set[str] = set()
    for method, keys in sorted(differing.items(), key=lambda item: bool(item[1])):  # what needs no other name keeps its
        variants = dict.fromkeys(_values(one, keys) for one in entries if one.result.method == method)
        names |= {(method, values): name for values, name in _named(method, keys, list(variants), taken).items()}
    notes = [
        f"Runs called '{shortened(method, 60)}' differ in more than their seeds ({_listed(keys)}); "
        "they are shown as different methods."
        for method, keys in differing.items()
        if keys
    ]
    named = [(entry, (entry.result.method, _values(entry, differing[entry.result.method]))) for entry in entries]
    return [_renamed(entry, names[key]) for entry, key in named], notes


def _values(entry: Entry, keys: Sequence[str]) -> Values:
    settings = experiment_settings(entry.result.config) if keys else {}
    return tuple(str(settings.get(key)) for key in keys)


def _named(method: str, keys: Sequence[str], variants: Sequence[Values], taken: set[str]) -> dict[Values, str]:
    """A name for each that nobody else has: `iql (expectile=0.9)`, or with numbers where that would be too long."""
    names = [_described(method, keys, values) for values in variants]
    fit = len(keys) <= MOST_NAMED and max(map(len, names)) <= LONGEST_NAME
    if not fit or len({*names}) < len(names) or taken.intersection(names):
        numbered = (f"{shortened(method, LONGEST_NAME - 20)} (variant {number})" for number in count(1))
        free = (name for name in numbered if name not in taken)
        names = [next(free) for _ in variants]
    taken.update(names)
    return dict(zip(variants, names, strict=True))


def _described(method: str, keys: Sequence[str], values: Values) -> str:
    told = ", ".join(
        f"{key.rpartition('.')[2]}={shortened(value, 24)}" for key, value in zip(keys, values, strict=True)
    )
    return shortened(f"{method} ({told})" if keys else method)


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of settings that are not the same in all."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return sorted(key for key in keys if any(one.get(key) != settings[0].get(key) for one in settings))


def _renamed(entry: Entry, name: str) -> Entry:
    if name == entry.result.method:
        return entry
    config = entry.result.config.model_copy(update={"method": name})
    return replace(entry, result=replace(entry.result, config=config))


def _each_seed_once(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Of copies of a run the one that is furthest: counted twice, a seed would make intervals too narrow."""
    kept: dict[tuple[str, str, int], Entry] = {}
    dropped: list[str] = []
    for entry in sorted(entries, key=lambda one: (one.state != "finished", -len(one.result.evaluations))):
        key = (entry.result.method, entry.result.task, entry.result.seed)
        if kept.setdefault(key, entry) is not entry:
            dropped.append(entry.shown)
    told = f"{counted(len(dropped), 'run')} of a seed that is here already: {_listed(dropped)}; not counted."
    return [entry for entry in entries if entry in kept.values()], [told] if dropped else []


def _standing(found: Study) -> list[str]:
    """How far everything is, where not everything is finished."""
    unfinished = [entry for entry in found.entries if entry.state != "finished"]
    notes = []
    if unfinished:
        states = [entry.state for entry in unfinished]
        told = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        rest = (
            "Preliminary: numbers are of the last evaluation so far, also of runs that are not finished."
            if found.preliminary
            else "Tables and statistics are of those that are finished; curves are of all."
        )
        verb = "has" if len(unfinished) == 1 else "have"
        notes.append(
            f"{counted(len(unfinished), 'run')} of {len(found.entries):,} {verb} not finished ({told}). {rest}"
        )
    if found.looks is None and any(planned_looks(folder) for folder in set(map(experiment_folder, found.entries))):
        notes.append(
            "Seeds of some of these were added until it was decided, and others stand beside them: the test here knows "
            "nothing of earlier looks, and errs more often than it says."
        )
    if found.damaged:
        notes.append(f"{counted(len(found.damaged), 'run')} cannot be read, and so counts nowhere: see Runs.")
    missing = [run for run in found.results.runs if run.evaluations and not abs(run.last(found.metric)) <= LARGEST]
    if missing:
        notes.append(
            f"{counted(len(missing), 'run')} ended without a number for {found.metric}, or with NaN or infinity "
            f"({_listed([_who(run) for run in missing])}). What has no number is in no mean, which flatters its method."
        )
    return notes


def _who(run: Result) -> str:
    return f"{shortened(run.method, 40)} on {shortened(run.task, 40)}, seed {run.seed}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(shortened(name, 80) for name in names[:LISTED]) + more


def _finite(table: Table) -> Table:
    return {
        method: {task: seeds[np.abs(seeds) <= LARGEST] for task, seeds in cells.items()}
        for method, cells in table.items()
    }
