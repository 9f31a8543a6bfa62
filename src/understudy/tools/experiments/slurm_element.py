"""An element of an array of Slurm: one run, as `work.train_or_resume` does it, and what becomes of it afterwards.

    SIGUSR1    its time is nearly up (or it is about to be pre-empted): save, and into the queue again
    SIGTERM    it is cancelled, or pre-empted: save. Whether it is to run again is not for it to say

It takes the place of the script's shell, so that it hears each signal once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from understudy.core.stopping import StoppedError, stoppable

AGAIN = 75
"""It is to be put into the queue again (EX_TEMPFAIL)."""
TOLD = 128 + signal.SIGTERM
"""It was told to stop, and has saved."""
MOST_ATTEMPTS = 3
"""So often a run that crashes is begun in all."""
LEASE_SECONDS, BUSY_SECONDS = 300.0, 2.0
"""How long a file system may take to notice that a node has died that held a lock; how often it is asked."""


def element(listing: Path, number: str) -> tuple[int, str]:
    """Do the work of one element: 0, 1, `AGAIN` or `TOLD`, and a sentence."""
    from understudy.tools.experiments.work import BUSY, FINISHED, STOPPED, Outcome, train_or_resume

    lines = listing.read_text(encoding="utf-8").splitlines()
    if not number.isdecimal() or int(number) >= len(lines):
        return 1, f"no run has the number '{number}': {listing} has 0 to {len(lines) - 1}"
    line = json.loads(lines[int(number)])
    last = time.monotonic() + LEASE_SECONDS * (os.environ.get("SLURM_RESTART_COUNT", "0") != "0")
    while True:
        done = Outcome.from_json(train_or_resume(line["directory"], line["config"]))
        if done.outcome != BUSY or time.monotonic() >= last:
            break
        time.sleep(BUSY_SECONDS)
    told = f"{line['directory']}: {done.outcome}. {done.reason}".strip()
    if done.outcome in (FINISHED, BUSY):  # whoever is at it ends it
        return 0, told
    if done.outcome == STOPPED:
        return TOLD, told
    again = done.retry and crashed(listing.with_name(f"{number}.crashes")) < MOST_ATTEMPTS
    return AGAIN if again else 1, told


def crashed(book: Path) -> int:
    """How often an element has, this time included."""
    from understudy.core.files import write_bytes

    count = int(book.read_text(encoding="utf-8")) + 1 if book.exists() else 1
    write_bytes(book, str(count).encode())
    return count


def requeue() -> int:
    """This element into the queue again; what to exit with, if Slurm does not end it first."""
    me = f"{os.environ.get('SLURM_ARRAY_JOB_ID')}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
    try:
        return subprocess.run(["scontrol", "requeue", me], check=False).returncode
    except FileNotFoundError:
        print(f"there is no scontrol here: {me} is not requeued", flush=True)
        return 1


def main() -> NoReturn:
    ending: list[int] = []

    def time_is_up(number: int, frame: FrameType | None) -> None:
        ending.append(number)
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGUSR1, time_is_up)
    listing, number = sys.argv[1:]
    try:
        with stoppable(f"element {number}", "What was saved before is whole."):
            code, told = element(Path(listing), number)
    except StoppedError as error:
        code, told = TOLD, str(error)
    print(told, flush=True)
    sys.exit(requeue() if code == AGAIN or (code == TOLD and ending) else code)


if __name__ == "__main__":
    main()
