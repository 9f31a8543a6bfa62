"""How far a search is: one line that changes, and a line for every trial that has ended."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, final

from understudy.run.callbacks import Callback, Values
from understudy.run.evaluation import Evaluation
from understudy.run.progress import Advance, Reporter
from understudy.run.rundir import RunDir
from understudy.tools.runs import describe_run_folder
from understudy.tools.tuning.confirm import FreshRun, number
from understudy.tools.tuning.study import Study, TrialRow

SECONDS = 0.5
"""Between two looks."""


def trial_line(row: TrialRow, best: TrialRow | None) -> str:
    """What there is to say of a trial that has ended."""
    settings = ", ".join(f"{key.removeprefix('algo.')} {short(word)}" for key, word in row.settings.items())
    if row.state == "complete" and row.value is not None:
        mark = ", the best so far" if best is not None and best.number == row.number else ""
        return f"trial {row.number}: {number(row.value)}{mark}  ({settings})"
    return f"trial {row.number} {row.state}: {row.reason}  ({settings})"


def short(word: str) -> str:
    """A setting in a table: four digits of a number."""
    try:
        return f"{float(word):.4g}"
    except ValueError:
        return word


@final
class SearchBoard(Callback):
    """Looks at a search now and then, whoever works on it; also a callback, for those who work in this process."""

    def __init__(self, study: Study, trials: int, reporter: Reporter, advance: Advance) -> None:
        self._study, self._trials, self._reporter, self._advance = study, trials, reporter, advance
        self._told = {row.number for row in study.rows() if row.state != "running"}
        self._looked = 0.0

    def on_log(self, updates: int, metrics: Values) -> None:
        self.look()

    def on_evaluation(self, updates: int, evaluation: Evaluation) -> bool | None:
        self.look()
        return None

    def on_end(self, result: Mapping[str, Any]) -> None:
        """Nothing to say yet: the trial has not been told what it is worth."""

    def look(self, *, now: bool = False) -> None:
        if not now and time.monotonic() - self._looked < SECONDS:
            return
        rows, best = self._study.rows(), next(iter(self._study.complete()), None)
        for row in rows:
            if row.state != "running" and row.number not in self._told:
                self._told.add(row.number)
                self._reporter.say(trial_line(row, best))
        done = sum(self._updates(row) for row in rows)
        ended = sum(row.state != "running" for row in rows)
        notes = [f"{ended} of {self._trials} trials"]
        if best is not None and best.value is not None:
            notes.append(f"best {number(best.value)} (trial {best.number})")
        self._advance(done, *notes)
        self._looked = time.monotonic()

    def _updates(self, row: TrialRow) -> int:
        plan = self._study.plan
        if row.state != "running":
            return plan.base.updates * plan.seeds
        folder = self._study.trial_folder(row.number)
        done = sum(updates_of(RunDir(folder / str(seed))) for seed in plan.search_seeds())
        return min(done, plan.base.updates * plan.seeds - 1)  # it has not been told what it is worth


@final
class FreshBoard(Callback):
    """The same of the second step."""

    def __init__(self, runs: Sequence[FreshRun], planned: int, advance: Advance) -> None:
        self._runs, self._planned, self._advance = runs, planned, advance
        self._looked = 0.0

    def on_log(self, updates: int, metrics: Values) -> None:
        self.look()

    def look(self, *, now: bool = False) -> None:
        if not now and time.monotonic() - self._looked < SECONDS:
            return
        done = [RunDir(run.place) for run in self._runs]
        finished = sum(run.finished for run in done)
        updates = sum(self._planned if run.finished else updates_of(run) for run in done)
        self._advance(updates, f"{finished} of {len(done)} runs")
        self._looked = time.monotonic()


def updates_of(run: RunDir) -> int:
    """How far a run is, finished or not begun."""
    return describe_run_folder(run.path).updates if run.config_file.exists() else 0
