"""Which processes a process has started, whether they are still there, and one that is bounded. Only where there is
/proc."""

import os
import resource
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path


def children(process: int | None = None) -> list[int]:
    """Forks of this process, or of another one, that nobody has waited for; other programs are not counted."""
    parent = Path("/proc", str(process or os.getpid()))
    started = [int(number) for task in parent.glob("task/*/children") for number in task.read_text().split()]
    return [number for number in started if _words(number) in ((parent / "cmdline").read_bytes(), b"")]


def _words(process: int) -> bytes:
    """Its command line; a process that has ended has none."""
    try:
        return Path("/proc", str(process), "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def gone(process: int) -> bool:
    """It has ended, whether or not somebody has waited for it."""
    try:
        return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_gone(processes: Iterable[int], seconds: float = 10.0) -> bool:
    """Whether they end within this time."""
    remaining, until = list(processes), time.monotonic() + seconds
    while remaining and time.monotonic() < until:
        remaining = [process for process in remaining if not gone(process)]
        time.sleep(0.005)
    return not remaining


def say_in_a_bounded_fork(work: Callable[[], str], room: int, seconds: int) -> str:
    """What `work` says in a fork that may have `room` more bytes than this process, and so many seconds of a core."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become(work, writing, room, seconds)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"ended with {os.waitstatus_to_exitcode(status)}: {said}"
    return said


def _become(work: Callable[[], str], writing: int, room: int, seconds: int) -> None:
    code = 1
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + room,) * 2)
        spent = sum(os.times()[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + seconds,) * 2)
        try:
            said, code = work(), 0
        except BaseException:
            said = traceback.format_exc()
        with os.fdopen(writing, "w", encoding="utf-8", errors="replace") as answer:
            answer.write(said)
    finally:
        os._exit(code)
