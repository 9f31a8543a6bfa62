"""Works off a plan: begins what was not begun, goes on with what was, tries again what crashed; whatever kills it, the
same command goes on, to the same results.

What is finished is known by the run directories alone. bench.jsonl beside them remembers what happened and why; nothing
reads it but people.
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from understudy.core.errors import RunError
from understudy.core.lock import lock_folder, release
from understudy.core.stopping import StoppedError, stop_signals, stoppable
from understudy.core.wording import counted
from understudy.run.growing_file import GrowingFile
from understudy.run.plots import as_float
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from understudy.tools.experiments.launcher import Launcher
from understudy.tools.experiments.plan import Plan, PlannedRun
from understudy.tools.experiments.work import BUSY, FAILED, FINISHED, STOPPED, Outcome
from understudy.tools.runs import last_line

BOOK = "bench.jsonl"
MOST_ATTEMPTS = 3
"""So often a run that crashes is begun in all."""
LOOKED_SECONDS = 0.5
BUSY_SECONDS = 2.0
"""After so long it is seen again whether another process still works on a run."""
State = Literal["waiting", "running", "elsewhere", "finished", "failed"]
NAN = float("nan")


@final
@dataclass
class Standing:
    """How a run stands."""

    planned: PlannedRun
    state: State = "waiting"
    attempts: int = 0
    reason: str = ""
    """Why it failed, or what happened to it last."""
    updates: int = 0
    rate: float = 0.0
    """Updates per second, since it was begun here."""
    last: float = NAN
    """What it is judged by, at its last evaluation."""
    not_before: float = 0.0
    began: float = 0.0
    from_updates: int = 0
    sizes: dict[Path, int] = field(default_factory=dict)
    """Of the logs as they were read last."""

    def look(self, metric: str, now: float) -> None:
        """Read its logs, as far as they have grown."""
        run = RunDir(self.planned.directory)
        if self._grown(run.metrics_file):
            self._reached(last_line(run.metrics_file), now)
        if self._grown(run.eval_file):
            line = last_line(run.eval_file)
            self._reached(line, now)
            self.last = as_float(line.get(metric))

    def _grown(self, path: Path) -> bool:
        try:
            size = path.lstat().st_size
        except OSError:
            return False
        grown, self.sizes[path] = size != self.sizes.get(path), size
        return grown

    def _reached(self, line: dict[str, object], now: float) -> None:
        updates = line.get("updates")
        if isinstance(updates, int) and updates > self.updates:
            self.updates = updates
            if self.state == "running":
                self.rate = (updates - self.from_updates) / max(now - self.began, 1e-9)


Watch = Callable[[], None]
Watching = Callable[[Plan, Sequence[Standing]], AbstractContextManager[Watch]]
"""Opens something that shows how runs stand, anew whenever it is told to."""


@final
class Manager:
    """One plan being worked off by one launcher, so many runs at once."""

    def __init__(self, plan: Plan, launcher: Launcher, jobs: int, reporter: Reporter, watching: Watching) -> None:
        self.plan, self.launcher, self.jobs, self.reporter, self.watching = plan, launcher, jobs, reporter, watching
        self.standings = [Standing(run) for run in plan.runs]
        self._running: dict[int, Standing] = {}
        self._looked = 0.0

    def run(self) -> Sequence[Standing]:
        """To the end of all that can be brought to one. Ctrl-C and SIGTERM: runs are saved, and the way on is told."""
        with (
            _held(self.plan.out),
            stoppable(f"experiment '{self.plan.out}'", self._way_on),
            closing(GrowingFile(self.plan.out / BOOK)) as book,
        ):
            for making in self.plan.makings:
                making.make(self.reporter)
            self._book = book
            for standing in self.standings:
                standing.state = "finished" if RunDir(standing.planned.directory).finished else "waiting"
                standing.look(self.plan.metric, time.monotonic())
            self._work_off()
        return self.standings

    def _work_off(self) -> None:
        waiting = deque(standing for standing in self.standings if standing.state == "waiting")
        with stop_signals() as signals, closing(self.launcher), self.watching(self.plan, self.standings) as watch:
            while (waiting and not signals) or self._running:
                if signals:
                    self._cancel()
                else:
                    self._submit(waiting)
                for handle, outcome in self.launcher.poll(LOOKED_SECONDS / 2).items():
                    standing = self._running.pop(handle)
                    self._ended(standing, outcome)
                    waiting.extend([standing] if standing.state in ("waiting", "elsewhere") else [])
                self._look(watch)
                if waiting and not self._running:
                    time.sleep(LOOKED_SECONDS / 2)  # all that is left is worked on elsewhere
            watch()
        if signals:
            raise StoppedError(f"experiment '{self.plan.out}'", signals[0], self._way_on())

    def _submit(self, waiting: deque[Standing]) -> None:
        now = time.monotonic()
        for _ in range(len(waiting)):
            if len(self._running) >= self.jobs:
                return
            standing = waiting.popleft()
            if standing.not_before > now:
                waiting.append(standing)
                continue
            standing.state, standing.began, standing.from_updates = "running", now, standing.updates
            standing.attempts += 1
            planned = standing.planned
            self._running[self.launcher.submit(str(planned.directory), planned.order)] = standing

    def _ended(self, standing: Standing, outcome: Outcome) -> None:
        standing.reason = outcome.reason
        standing.look(self.plan.metric, time.monotonic())
        if outcome.outcome == FINISHED:
            standing.state = "finished"
        elif outcome.outcome == BUSY:
            standing.state, standing.not_before = "elsewhere", time.monotonic() + BUSY_SECONDS
            standing.attempts -= 1
            return
        elif outcome.outcome == STOPPED or (outcome.retry and standing.attempts < MOST_ATTEMPTS):
            standing.state = "waiting"
        else:
            standing.state = "failed"
        self._note(standing, outcome)

    def _note(self, standing: Standing, outcome: Outcome) -> None:
        planned = standing.planned
        who = {"method": planned.method, "task": planned.task, "seed": planned.seed, "run": str(planned.directory)}
        what = {"outcome": outcome.outcome, "attempt": standing.attempts, "reason": outcome.reason}
        self._book.write(json.dumps({"at": round(time.time(), 1), **who, **what}).encode() + b"\n")
        if outcome.outcome == FAILED:
            again = "is tried again" if standing.state == "waiting" else "is given up"
            self.reporter.say(f"{planned.name} {again}: {outcome.reason}")

    def _cancel(self) -> None:
        """Once; who asks twice is heard by whoever listened before."""
        for handle, standing in self._running.items():
            if standing.state == "running":
                standing.state = "waiting"
                self.launcher.cancel(handle)

    def _look(self, watch: Watch) -> None:
        clock = time.monotonic()
        if clock - self._looked >= LOOKED_SECONDS:
            self._looked = clock
            for standing in self._running.values():
                standing.look(self.plan.metric, clock)
            watch()

    def _way_on(self) -> str:
        done = sum(standing.state == "finished" for standing in self.standings)
        told = f"{done} of {counted(len(self.standings), 'run')} finished"
        return f"{told}, the others are saved as far as they came. The same command goes on."


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Only one manager works in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    handle = lock_folder(out, RunError, f"experiment '{out}'", "Wait for it, stop it, or choose another place (--out).")
    try:
        yield
    finally:
        release(handle)


def usual_jobs(plan: Plan) -> int:
    """As many runs at once as there are cores for, each with the threads that it has."""
    threads = max((run.config.threads for run in plan.runs), default=1)
    return max(1, cores() // threads)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in vars(os) else os.cpu_count() or 1


def seconds_left(standings: Sequence[Standing], jobs: int) -> float:
    """How long the rest takes, if what is yet to come is as fast as what its method has shown; NaN if nobody knows."""
    rates: dict[str, list[float]] = {}
    for standing in standings:
        if standing.rate > 0:
            rates.setdefault(standing.planned.method, []).append(standing.rate)
    known = [rate for some in rates.values() for rate in some]
    if not known:
        return NAN
    left = [
        (standing.planned.config.updates - standing.updates) / _mean(rates.get(standing.planned.method, known))
        for standing in standings
        if standing.state not in ("finished", "failed")
    ]
    return max(sum(left) / max(jobs, 1), max(left, default=0.0))


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
