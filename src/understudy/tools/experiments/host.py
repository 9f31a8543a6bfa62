"""The process that local runs are forked from: it imports what they need once, learns nothing, and ends with its owner.

One JSON object per line on stdin: {job, directory, config} begins a run, {job, cancel} has it save and stop. One per
line for each that ended, on the handle that the command names, as anything may print to stdout while it is imported:
{job, outcome}, or {job, died, words, cancelled} for one that could not say more. When stdin ends, the manager did: all
runs are told to save and stop, and have some time for it.
"""

import gc
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any, NoReturn, final

from understudy.algorithms import algorithm_names, find_algorithm
from understudy.core.files import write_all
from understudy.core.plugins import of_others
from understudy.core.processes import die_with, end_with, ending
from understudy.run.meta import OURS, sources, versions
from understudy.tools.experiments.work import train_or_resume

USED_LATER = ("understudy.run.plots", "matplotlib.figure", "matplotlib.backends.backend_agg", "gymnasium")
"""What runs import when they need it."""
STOPS = (signal.SIGTERM,)
SAVING_SECONDS = 120.0
MOST_WORDS = 500
"""Letters of what a process said last that are told when it died."""


@final
@dataclass
class Job:
    process: int
    answer: IO[bytes]
    said: IO[bytes]
    cancelled: bool = False


@final
class Host:
    def __init__(self, line: int) -> None:
        self.line = line
        """To the manager."""
        self.jobs: dict[int, Job] = {}
        self.read = b""
        self.alive, self.held = os.pipe()
        """A line whose end nobody else holds: where the kernel kills no orphans, its hanging up does."""

    def serve(self, woken: int) -> None:
        watch = select.poll()
        for handle in (0, woken):
            watch.register(handle, select.POLLIN)
        while True:
            ready = {handle for handle, _ in watch.poll()}
            if woken in ready:
                os.read(woken, 1 << 12)
            self.tell_ended()
            if 0 in ready and not self.hear():
                return

    def hear(self) -> bool:
        """Messages from the manager; False if there will be none any more."""
        some = os.read(0, 1 << 16)
        *lines, self.read = (self.read + some).split(b"\n")
        for message in map(json.loads, lines):
            if "cancel" in message:
                self.cancel(message["job"])
            else:
                self.begin(**message)
        return bool(some)

    def begin(self, job: int, directory: str, config: str) -> None:
        answer, said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (they last as long as it does)
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until it can hear them
        process = os.fork()
        if process == 0:
            self.become(parent, answer, said, directory, config)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        self.jobs[job] = Job(process, answer, said)

    def become(self, parent: int, answer: IO[bytes], said: IO[bytes], directory: str, config: str) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            die_with(parent)
            os.close(self.held)
            os.close(self.line)
            threading.Thread(target=end_with, args=(self.alive,), daemon=True).start()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for handle, number in ((nothing, 0), (said.fileno(), 1), (said.fileno(), 2)):
                os.dup2(handle, number)
            write_all(answer.fileno(), train_or_resume(directory, config).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)

    def cancel(self, job: int) -> None:
        if job in self.jobs:
            self.jobs[job].cancelled = True
            with suppress(ProcessLookupError):
                os.kill(self.jobs[job].process, signal.SIGTERM)

    def tell_ended(self) -> None:
        for number, job in list(self.jobs.items()):
            process, status = os.waitpid(job.process, os.WNOHANG)
            if process:
                del self.jobs[number]
                with suppress(BrokenPipeError):
                    write_all(self.line, json.dumps({"job": number, **_told(job, status)}).encode() + b"\n")

    def end(self, seconds: float) -> None:
        """Have all save and stop; what has not done so in time is killed."""
        for number in self.jobs:
            self.cancel(number)
        until = time.monotonic() + seconds
        while self.jobs and time.monotonic() < until:
            time.sleep(0.02)
            self.tell_ended()
        for job in self.jobs.values():
            os.kill(job.process, signal.SIGKILL)


def _told(job: Job, status: int) -> dict[str, Any]:
    with job.answer as answer, job.said as said:
        answer.seek(0)
        if outcome := answer.read().decode():
            return {"outcome": outcome}
        said.seek(0)
        words = " ".join(said.read().decode(errors="replace").split())[-MOST_WORDS:]
        return {"died": ending(os.waitstatus_to_exitcode(status)), "words": words, "cancelled": job.cancelled}


def import_ours() -> None:
    """Modules of other packages are for the runs that ask for them: one that fails, or prints, or begins threads that
    no fork survives is no other run's concern."""
    for name, module in algorithm_names().items():
        if not of_others(module):
            find_algorithm(name)
    for name in USED_LATER:
        with suppress(ImportError):
            import_module(name)


def main() -> None:
    line = int(sys.argv[1])
    os.set_inheritable(line, False)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the manager hears them, and then closes the line
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    import_ours()
    versions()
    sources(OURS)  # of the code that was imported just now, whatever becomes of its files
    gc.freeze()
    host = Host(line)
    host.serve(waking)
    host.end(SAVING_SECONDS)


if __name__ == "__main__":
    main()
