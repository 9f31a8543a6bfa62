"""Runs as results: which method learned which task with which seed, and how it was judged meanwhile.

Read from run directories and from nothing else, finished or not; tables, statistics and reports begin here. What is
compared is one number per seed: seeds are what a method is judged by, the episodes of an evaluation say how well one
seed is known, and the two are never mixed.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, RunError, did_you_mean
from understudy.core.files import json_bytes, sha256_bytes
from understudy.run.config import RETURN, RunConfig
from understudy.run.identity import deciding_settings
from understudy.run.plots import as_float, task_name
from understudy.run.rundir import RunDir
from understudy.tools.runs import find_runs

SCORE = "eval/score"
CONTENT = {"path", "fingerprint"}
SEED_OWN = ("seed", "compile", "init_fingerprint")
"""Settings in which the seeds of one experiment may differ; `compile` is decided anew by every run."""


@final
@dataclass(frozen=True)
class Result:
    """One run: a method, a task, a seed."""

    path: Path
    config: RunConfig
    state: str
    """finished, running, stopped or killed."""
    evaluations: Sequence[Mapping[str, Any]]
    """The lines of eval.jsonl so far."""

    @property
    def method(self) -> str:
        """What it is called beside others."""
        return self.config.method or self.config.algorithm

    @property
    def task(self) -> str:
        """The suite's task, else the data it learns from, else the environment it plays in."""
        data = self.config.data
        return self.config.task or (Path(data.path).stem if data is not None and data.path else task_name(self.config))

    @property
    def seed(self) -> int:
        return self.config.seed

    @cached_property
    def experiment(self) -> str:
        return experiment_digest(self.config)

    @property
    def learned_from(self) -> dict[str, str]:
        """Fingerprint of each dataset, by all that decides what it holds: its path, its settings, the environment. Who
        has the same there and another fingerprint has seen another content under the same name."""
        env = self.config.env.id if self.config.env is not None else ""
        return {
            json.dumps([env, str(Path(data.path).absolute()), data.model_dump(mode="json", exclude=CONTENT)]): known
            for data in self.config.data_by_role.values()
            if data.path and (known := data.fingerprint)
        }

    @property
    def metric(self) -> str:
        """What it is judged by, if nobody says otherwise: its score where it has one."""
        scored = bool(self.evaluations) and all(SCORE in line for line in self.evaluations)
        return SCORE if scored and self.config.best_metric == RETURN else self.config.best_metric

    def curve(self, metric: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Updates [n] and values [n] of the evaluations that measured it; of each episode there is no curve."""
        measured = [line for line in self.evaluations if not isinstance(line.get(metric, []), list)]
        known = [(line["updates"], as_float(line[metric])) for line in measured]
        updates, values = zip(*known, strict=True) if known else ((), ())
        return np.array(updates, np.int64), np.array(values, np.float64)

    def last(self, metric: str) -> float:
        """At the end, which nobody chose; NaN if it was never measured."""
        values = self.curve(metric)[1]
        return float(values[-1]) if len(values) else float("nan")

    def best(self, metric: str) -> float:
        """The best of all evaluations: chosen by what it is judged by, so better than it will do."""
        values = self.curve(metric)[1]
        known = values[~np.isnan(values)]
        if not len(known):
            return float("nan")
        return float(known.min() if lowest_is_best(self.config, metric) else known.max())


@final
@dataclass(frozen=True)
class Results:
    """Runs that are looked at together, by method and task in the order in which they were first met."""

    runs: Sequence[Result]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    def of(self, method: str, task: str) -> list[Result]:
        """The seeds of one cell, in their order."""
        found = [run for run in self.runs if run.method == method and run.task == task]
        return sorted(found, key=lambda run: run.seed)

    def common_metric(self) -> str:
        """What all of them are judged by, or an error that says who is judged by what."""
        names = {run.metric: run for run in self.runs if run.evaluations}
        if len(names) > 1:
            told = "; ".join(f"{name} ('{run.path}')" for name, run in sorted(names.items()))
            raise ConfigError("metric", f"these runs are judged by different numbers: {told}", do="Name one of them.")
        return next(iter(names), RETURN)

    def scores(
        self, metric: str, value: Callable[[Result, str], float] = Result.last, *, finished: bool = True
    ) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Method → task → one number per seed [seeds]; of finished runs, or of whatever was measured so far.

        Runs that did not measure it have none. One that measured NaN keeps it, and statistics ask what it shall count
        as: without its failures a method would seem better than it is.
        """
        self._check_known(metric)
        table: dict[str, dict[str, NDArray[np.float64]]] = {}
        for method in self.methods:
            table[method] = {}
            for task in self.tasks:
                runs = [run for run in self.of(method, task) if run.state == "finished" or not finished]
                _check_seeds(runs)
                measured = [run for run in runs if len(run.curve(metric)[1])]
                table[method][task] = np.array([value(run, metric) for run in measured], np.float64)
        return table

    def _check_known(self, metric: str) -> None:
        """Where anything was evaluated, somebody measured it."""
        lines = [line for run in self.runs for line in run.evaluations[-1:]]
        if lines and not any(len(run.curve(metric)[1]) for run in self.runs):
            names = {name for line in lines for name, value in line.items() if not isinstance(value, list)}
            raise ConfigError("metric", f"no run has '{metric}'", do=did_you_mean(metric, names - {"updates"}))


def _check_seeds(runs: Sequence[Result]) -> None:
    """The seeds of one method on one task: one experiment, and each of them once."""
    for one, other in pairwise(runs):
        where, both = f"'{one.method}' on '{one.task}'", f"'{one.path}' and '{other.path}'"
        if one.experiment != other.experiment:
            do = "Give them names (method=…), or read them one after the other."
            raise RunError(where, f"{both} differ in more than their seed", do=do)
        if one.seed == other.seed:
            raise RunError(
                where, f"{both} are the same seed", got=one.seed, do="It counts once: leave out one of them."
            )


def lowest_is_best(config: RunConfig, metric: str) -> bool:
    """Less of a number is better: what the run says of what it is judged by, else if it is an error or a distance."""
    if metric == config.best_metric:
        return config.best_lowest
    return metric.endswith("_error") or metric.removeprefix("eval/") in config.task_metrics


def experiment_digest(config: RunConfig) -> str:
    """Equal for runs that differ in nothing but their seed and in where they lie: settings, updates, data."""
    settings = {key: value for key, value in deciding_settings(config).items() if key not in SEED_OWN}
    return sha256_bytes(json_bytes({**settings, "updates": config.updates}))


def read_results(folders: Iterable[Path | str]) -> Results:
    """Every run below these folders, each once. A folder without any is an error."""
    return Results([read_result(path) for path in run_paths(folders)])


def run_paths(folders: Iterable[Path | str]) -> list[Path]:
    """Where the runs below these folders lie, each once. A folder without any is an error."""
    paths: dict[Path, None] = {}
    for folder in map(Path, folders):
        found = find_runs(folder)
        if not found:
            what = "holds no run" if folder.is_dir() else "no such folder"
            raise RunError(f"'{folder}'", what, do="Name a run directory, or a folder of some.")
        paths.update(dict.fromkeys(path.resolve() for path in found))
    return list(paths)


def read_result(path: Path) -> Result:
    run = RunDir.open(path)
    return Result(path, run.config, run.state, run.evaluations())
