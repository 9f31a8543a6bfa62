"""A process that has imported everything and forks a real child per job: `understudy` without the wait for torch.

It never trains itself, so that every child starts as a fresh process would. One JSON request per line on stdin
(a job, or a pid to wait for), one JSON answer per line on stdout.
"""

import contextlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ring_job
import torch
from faults import install
from small import register_worlds

from understudy.algorithms import algorithm_names, find_algorithm
from understudy.cli import commands
from understudy.cli.main import main as understudy
from understudy.data import scores
from understudy.data.stores import store
from understudy.run import event_file, session
from understudy.run.meta import sources, versions
from understudy.sources import find_source, source_names

PRELOADED = (commands, event_file, scores, store, session)
"""What the command imports when it needs it; here once, so that no child waits for it."""

KIBIBYTE = 1024 if sys.platform == "linux" else 1
"""In what the memory of a child is counted."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would inherit "ignore"
    torch.set_num_threads(1)
    register_worlds()
    warm_up()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            _, status, usage = os.wait4(request["wait"], 0)
            answer = [os.waitstatus_to_exitcode(status), usage.ru_maxrss * KIBIBYTE]
        else:
            # A Ctrl-C that comes before the child is the command would hit the server's code instead.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            pid = os.fork()
            if pid == 0:
                become(request)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            answer = [pid]
        answers.write(f"{json.dumps(answer)}\n")


def warm_up() -> None:
    """Fill the caches that every run of the command would fill."""
    versions()
    for name in algorithm_names():
        find_algorithm(name)
        for kind in source_names():
            find_source(kind)
            sources(algorithm_names()[name], source_names()[kind])
    sys.argv = ["understudy", "list", "algorithms"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        understudy()


def become(job: dict[str, Any]) -> None:
    """Turn this forked child into one run of the command, or of a job of its own name."""
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(Path(job["talk"]) / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = ["understudy", *job["argv"]]
    install(job["faults"])
    code: Any = 0
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        (ring_job.main if job["argv"][0] == ring_job.NAME else understudy)()
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:  # in the lines before the command, or after it
        code = 128 + signal.SIGINT
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
