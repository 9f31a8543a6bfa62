"""Processes that work on one search: what each does, and who starts them, counts their deaths and ends them.

A worker is given a folder and words, and reads everything else there. It ends, saved, when its standard input does:
the kernel closes that when whoever started it dies, however it dies.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.stopping import stoppable
from understudy.tools.tuning.confirm import candidates, fresh_runs, work_off_fresh
from understudy.tools.tuning.study import Study, quietly
from understudy.tools.tuning.trial import Work, run_trial

LOG = "workers.log"
PAUSE = 0.2
FRUITLESS = 3
"""Workers that may die one after the other without having worked on anything."""
WORDS_OF_LOG = 600


@final
@dataclass(frozen=True)
class Orders:
    """What the processes of a search are to do."""

    trials: int
    top: int
    fresh: int
    retries: int
    fresh_only: bool = False
    """The second step."""

    def words(self) -> str:
        return json.dumps(asdict(self))


def work_off(study: Study, orders: Orders, work: Work) -> None:
    """Everything that is to be done and that nobody else does."""
    if orders.fresh_only:
        runs = fresh_runs(study, candidates(study, orders.top), orders.fresh)
        return work_off_fresh(study, runs, work)
    while (claim := study.claim(orders.trials)) is not None:
        run_trial(study, claim, work)
    return None


def main(folder: str, words: str) -> int:
    """One worker; what to exit with."""
    threading.Thread(target=_end_with_whoever_started, daemon=True).start()
    orders = Orders(**json.loads(words))
    try:
        with stoppable(f"worker of '{folder}'"), quietly():
            work_off(Study.open(Path(folder)), orders, Work(orders.retries))
    except UnderstudyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _end_with_whoever_started() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@final
class Workers:
    """So many processes, replaced when they die. What was in the hands of one that died counts as an attempt."""

    def __init__(self, study: Study, orders: Orders, jobs: int, unfinished: Callable[[], int]) -> None:
        self._study, self._orders, self._jobs, self._unfinished = study, orders, jobs, unfinished
        self._running: list[subprocess.Popen[bytes]] = []
        self._fruitless = 0

    def run(self, look: Callable[[], None]) -> None:
        """Until nothing is left to do, or a signal says otherwise: then all are saved first."""
        try:
            self._fill()
            while self._running:
                time.sleep(PAUSE)
                look()
                self._bury()
        finally:
            self._end()

    def _fill(self) -> None:
        while len(self._running) < min(self._jobs, self._unfinished()):
            command = [sys.executable, "-m", "understudy.tools.tuning.worker"]
            with (self._study.folder / LOG).open("ab") as log:
                self._running.append(
                    subprocess.Popen(
                        [*command, str(self._study.folder), self._orders.words()],
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,  # Ctrl-C is heard here, and handed on once
                    )
                )

    def _bury(self) -> None:
        """Take those off the list that have ended, and put others in the place of those that died."""
        ended = [one for one in self._running if one.poll() is not None]
        self._running = [one for one in self._running if one.poll() is None]
        for worker in ended:
            _close(worker)
            if worker.returncode:
                self._blame(worker)
        if any(worker.returncode for worker in ended) or (not self._running and self._unfinished()):
            self._fill()

    def _blame(self, worker: "subprocess.Popen[bytes]") -> None:
        before = self._unfinished()
        reason = f"its process ended by {_signal_name(worker.returncode)}"
        if worker.returncode not in (-signal.SIGTERM, 128 + signal.SIGTERM):  # that one has saved its run
            self._study.blame_worker(worker.pid, reason, self._orders.retries)
        self._fruitless = 0 if self._unfinished() < before else self._fruitless + 1
        if self._fruitless > FRUITLESS * (self._orders.retries + 1):
            log = (self._study.folder / LOG).read_text(encoding="utf-8", errors="replace")
            raise RunError(
                f"tuning '{self._study.folder}'",
                f"its processes die one after the other ({reason}): {log[-WORDS_OF_LOG:].strip()}",
            )

    def _end(self) -> None:
        for worker in self._running:
            worker.send_signal(signal.SIGTERM)
        for worker in self._running:
            worker.wait()
            _close(worker)


def _close(worker: "subprocess.Popen[bytes]") -> None:
    if worker.stdin is not None:
        worker.stdin.close()


def _signal_name(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
