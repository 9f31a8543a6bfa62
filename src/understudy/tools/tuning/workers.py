"""Who starts the workers of a search, counts their deaths and ends them; and workers of this machine."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import final
from uuid import uuid4

from understudy.core.errors import RunError
from understudy.core.processes import HINTS, ending
from understudy.core.stopping import StoppedError, stop_signals
from understudy.tools.experiments.launcher import Launcher
from understudy.tools.experiments.work import FAILED, FINISHED, STOPPED, Outcome
from understudy.tools.tuning.study import Study
from understudy.tools.tuning.worker import Orders, blame

LOG = "workers.log"
GO_ON = "The same command goes on."
LOOK, PAUSE = 0.2, 0.02
"""Seconds between two looks of who gives orders, and of who waits for processes."""
FRUITLESS = 3
"""So often each worker may die, one after the other, with nothing in its hands."""
WORDS_OF_LOG = 600


@final
class Workers:
    """So many at once, replaced when they die. What was in the hands of one that died counts as an attempt."""

    def __init__(
        self, study: Study, orders: Orders, jobs: int, launcher: Launcher, unfinished: Callable[[], int]
    ) -> None:
        self._study, self._orders, self._jobs = study, orders, jobs
        self._launcher, self._unfinished = launcher, unfinished
        self._running: dict[int, str] = {}
        self._left, self._fruitless = unfinished(), 0

    def run(self, look: Callable[[], None]) -> None:
        """Until nothing is left to do, or a signal says otherwise: then all are saved first."""
        with stop_signals() as signals:
            try:
                self._fill()
                while self._running and not signals:
                    ended = self._launcher.poll(LOOK)
                    look()
                    self._bury(ended)
            finally:
                self._end()
        if signals:
            raise StoppedError(f"tuning '{self._study.folder}'", signals[0], GO_ON)

    def _fill(self) -> None:
        while len(self._running) < min(self._jobs, self._unfinished()):
            name = uuid4().hex
            words = replace(self._orders, worker=name).words()
            self._running[self._launcher.submit(str(self._study.folder), words)] = name

    def _bury(self, ended: Mapping[int, Outcome]) -> None:
        """Take those off the list that have ended, and put others in the place of those that died."""
        lost = [(self._running.pop(handle), outcome) for handle, outcome in ended.items()]
        lost = [(name, outcome) for name, outcome in lost if outcome.outcome != FINISHED]
        for name, outcome in lost:
            self._count(name, outcome)
        if lost or (not self._running and self._unfinished()):
            self._fill()

    def _count(self, name: str, outcome: Outcome) -> None:
        """A death. It costs an attempt at what it ended, unless all was saved; what costs nothing cannot go on."""
        cost = outcome.outcome == FAILED and blame(self._study, self._orders, name, outcome.reason)
        left = self._unfinished()
        self._fruitless = 0 if cost or left < self._left else self._fruitless + 1
        self._left = left
        if self._fruitless >= FRUITLESS * self._jobs:
            what = f"its processes die one after the other: {outcome.reason}"
            raise RunError(f"tuning '{self._study.folder}'", what)

    def _end(self) -> None:
        for handle in self._running:
            self._launcher.cancel(handle)
        while self._running:
            for handle in self._launcher.poll(LOOK):
                del self._running[handle]


@final
class LocalWorkers:
    """A launcher of processes of this machine, whose standard input ends with this one."""

    def __init__(self) -> None:
        self._handles = 0
        self._running: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}

    def submit(self, directory: str, config: str) -> int:
        self._handles += 1
        path = Path(directory) / LOG
        try:
            with path.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "understudy.tools.tuning.worker", directory, config],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is heard here, and handed on once
                )
        except OSError as error:
            raise RunError("workers", f"no process could be started ({error})") from error
        self._running[self._handles] = process, path
        return self._handles

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        until = time.monotonic() + seconds
        while self._running:
            ended = [handle for handle, (process, _) in self._running.items() if process.poll() is not None]
            if ended or time.monotonic() > until:
                return {handle: self._outcome(handle) for handle in ended}
            time.sleep(PAUSE)
        return {}

    def cancel(self, handle: int) -> None:
        if handle in self._running:
            self._running[handle][0].terminate()

    def close(self) -> None:
        """Let go of those that still run: they save, and end."""
        for process, _ in self._running.values():
            _hang_up(process)
        self._running.clear()

    def _outcome(self, handle: int) -> Outcome:
        process, log = self._running.pop(handle)
        assert process.stdout is not None
        answer = process.stdout.read().decode()
        _hang_up(process)
        if process.returncode == 0 and answer:
            return Outcome.from_json(answer)
        how = ending(process.returncode)
        words = "" if process.returncode < 0 else log.read_text(errors="replace")[-WORDS_OF_LOG:].strip()
        reason = " ".join(filter(None, [f"its process ended with {how}.", HINTS.get(how, ""), words]))
        return Outcome(STOPPED if how == "SIGTERM" else FAILED, reason, retry=True)


def _hang_up(process: "subprocess.Popen[bytes]") -> None:
    for line in (process.stdin, process.stdout):
        with suppress(OSError):
            if line is not None:
                line.close()
