"""One worker of a search: told a folder and words, it does everything there that nobody else does.

It reads all else in the folder, wherever it runs: in a process of this machine, or of Ray's.
"""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from understudy.core.stopping import stoppable
from understudy.tools.experiments.work import FAILED, FINISHED, Outcome
from understudy.tools.experiments.work import STOPPED as SAVED
from understudy.tools.tuning.confirm import blame_fresh, candidates, fresh_runs, work_off_fresh
from understudy.tools.tuning.study import Study, quietly
from understudy.tools.tuning.trial import STOPPED, Work, run_trial, told


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
    worker: str = ""
    """What whoever gives them calls the one who gets them."""

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


def blame(study: Study, orders: Orders, worker: str, reason: str) -> bool:
    """A worker died: that counts as an attempt at what it had in its hands. False if that was nothing."""
    if orders.fresh_only:
        return blame_fresh(study, fresh_runs(study, candidates(study, orders.top), orders.fresh), worker, reason)
    return study.blame_worker(worker, reason, orders.retries)


def work(folder: str, words: str) -> str:
    """Orders, carried out to their end; an `Outcome` in JSON."""
    return _work(Path(folder), Orders(**json.loads(words))).to_json()


def _work(folder: Path, orders: Orders) -> Outcome:
    try:
        with stoppable(f"worker of '{folder}'"), quietly():
            work_off(Study.open(folder, orders.worker), orders, Work(orders.retries))
    except STOPPED as error:
        return Outcome(SAVED, str(error), retry=True)
    except Exception as error:
        return Outcome(FAILED, told(error), retry=True)
    return Outcome(FINISHED)


def main(folder: str, words: str) -> None:
    """In a process of its own, which ends, saved, when its standard input does: the kernel closes that when whoever
    started it dies, however it dies."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what others print is no answer
    threading.Thread(target=_end_with_whoever_started, daemon=True).start()
    with os.fdopen(answer, "w", encoding="utf-8") as line:
        line.write(work(folder, words))


def _end_with_whoever_started() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
