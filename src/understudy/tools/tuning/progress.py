"""How far a search is: a table that keeps changing where there is a screen, and a line for each ended trial."""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import final

from understudy.run.callbacks import Callback, Values
from understudy.run.evaluation import Evaluation
from understudy.run.plots import as_float
from understudy.run.progress import Pace, Reporter
from understudy.run.rundir import RunDir
from understudy.tools.runs import describe_run_folder, last_line
from understudy.tools.tuning.confirm import FreshRun, number
from understudy.tools.tuning.study import Study, TrialRow

SECONDS = 0.5
"""Between two looks."""
LONGEST_WORD = 12


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


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells under each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Board(Callback):
    """Looks at the work now and then, whoever does it; a callback, too, for those who work in this process."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.show: Callable[[], None] = lambda: None
        """Draws it anew."""
        self._looked = 0.0

    def on_log(self, updates: int, metrics: Values) -> None:
        self.look()

    def on_evaluation(self, updates: int, evaluation: Evaluation) -> bool | None:
        self.look()
        return None

    def look(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._looked >= SECONDS:
            self.read()
            self._looked = time.monotonic()
            self.show()

    def sentence(self) -> str:
        return self.pace.sentence(time.monotonic())

    def lines(self, width: int, height: int) -> list[str]:
        """At most so many of at most so many letters."""
        table = columns(rows) if len(rows := self.rows()) > 1 else []
        return [self.pace.line(time.monotonic(), width), *(line[:width] for line in table[: max(height - 1, 0)])]

    @abstractmethod
    def read(self) -> None:
        """See how things stand."""

    @abstractmethod
    def rows(self) -> list[list[str]]:
        """Of a table of what is being worked on."""


@final
class SearchBoard(Board):
    """The first step."""

    def __init__(self, study: Study, trials: int, reporter: Reporter) -> None:
        self._study, self._trials, self._reporter = study, trials, reporter
        self._rows = study.rows()
        self._told = {row.number for row in self._rows if row.state != "running"}
        super().__init__(Pace("search", trials * self._whole, "updates", time.monotonic(), done=self._done()))

    @property
    def _whole(self) -> int:
        """Updates of a trial."""
        return self._study.plan.base.updates * self._study.plan.seeds

    def read(self) -> None:
        self._rows, best = self._study.rows(), next(iter(self._study.complete()), None)
        for row in self._rows:
            if row.state != "running" and row.number not in self._told:
                self._told.add(row.number)
                self._reporter.say(trial_line(row, best))
        notes = [f"{len(self._told)} of {self._trials} trials"]
        if best is not None and best.value is not None:
            notes.append(f"best {number(best.value)} (trial {best.number})")
        self.pace.advance(time.monotonic(), self._done(), notes)

    def rows(self) -> list[list[str]]:
        """What is running."""
        metric = self._study.plan.base.best_metric
        table = [
            ["trial", "updates", metric.removeprefix("eval/"), *(_cut(key) for key in self._study.plan.dimensions)]
        ]
        for row in self._rows:
            if row.state == "running":
                runs = [RunDir(self._study.trial_folder(row.number) / str(seed)) for seed in self._seeds()]
                latest = next((run for run in reversed(runs) if run.eval_file.exists()), runs[0])
                value = as_float(last_line(latest.eval_file).get(metric)) if latest.eval_file.exists() else None
                told = "" if value is None else number(value)
                settings = [_cut(short(word)) for word in row.settings.values()]
                table.append([str(row.number), f"{self._updates(row):,}/{self._whole:,}", told, *settings])
        return table

    def _seeds(self) -> list[int]:
        return self._study.plan.search_seeds()

    def _done(self) -> int:
        return sum(self._updates(row) for row in self._rows)

    def _updates(self, row: TrialRow) -> int:
        if row.state != "running":
            return self._whole
        folder = self._study.trial_folder(row.number)
        done = sum(updates_of(RunDir(folder / str(seed))) for seed in self._seeds())
        return min(done, self._whole - 1)  # it has not been told what it is worth


@final
class FreshBoard(Board):
    """The second step."""

    def __init__(self, runs: Sequence[FreshRun], planned: int) -> None:
        self._runs, self._planned = [(run, RunDir(run.place)) for run in runs], planned
        super().__init__(Pace("fresh seeds", len(runs) * planned, "updates", time.monotonic(), done=self._done()))

    def read(self) -> None:
        finished = sum(run.finished for _, run in self._runs)
        self.pace.advance(time.monotonic(), self._done(), [f"{finished} of {len(self._runs)} runs"])

    def rows(self) -> list[list[str]]:
        table = [["", "seed", "updates"]]
        for planned, run in self._runs:
            if not run.finished and (done := updates_of(run)):
                table.append([planned.candidate.title, str(planned.seed), f"{done:,}/{self._planned:,}"])
        return table

    def _done(self) -> int:
        return sum(self._planned if run.finished else updates_of(run) for _, run in self._runs)


def updates_of(run: RunDir) -> int:
    """How far a run is, finished or not begun."""
    return describe_run_folder(run.path).updates if run.config_file.exists() else 0


def _cut(word: str) -> str:
    word = word.removeprefix("algo.")
    return word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 1]}…"
