"""Which processes a process has started, and whether they are still there. Only where there is /proc."""

import os
import time
from collections.abc import Iterable
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
