"""Ways to die and to fail, put into a forked child: each is the real thing, at a chosen moment."""

import os
import resource
import signal
from collections.abc import Callable
from typing import Any, TypedDict

from understudy.core.protocols import Metrics
from understudy.run import loop
from understudy.run.learner import Learner
from understudy.run.rundir import RunDir
from understudy.run.sinks import LogFile

CHANGES = ("write", "pwrite", "ftruncate", "rename", "replace", "mkdir", "unlink", "rmdir")
"""What changes the disk, beside opening a new file; dying before one of them is dying after the one before."""
LOOKS = ("fsync", "close")
"""What a process death before or after cannot tell apart; a power cut could."""


class Faults(TypedDict, total=False):
    die_at: int
    """SIGKILL in place of the n-th operation that changes files."""
    die_at_any: int
    """SIGKILL in place of the n-th file operation of any kind."""
    torn_at: int
    """SIGKILL after half of the n-th write."""
    stop_at: int
    """A stop signal arrives during this update."""
    stop_signal: int
    hurry_at: int
    """The same signal once more, before the n-th change of files that follows."""
    file_limit: int
    """No file may grow beyond so many bytes: what a full disk looks like to a process."""
    address_space: int
    """More memory than this is refused."""
    no_plots: bool
    """Drawing takes longer than the rest of a short run together."""


def install(faults: Faults) -> None:
    """Arrange for the faults in this process."""
    if faults.get("no_plots"):
        put(loop, "draw_run", _draw_nothing)
    if "die_at" in faults:
        _at(faults["die_at"], die, CHANGES)
    if "die_at_any" in faults:
        _at(faults["die_at_any"], die, (*CHANGES, *LOOKS))
    if "torn_at" in faults:
        _tear(faults["torn_at"])
    if "stop_at" in faults:
        _stop_at(faults["stop_at"], faults.get("stop_signal", signal.SIGTERM), faults.get("hurry_at", 0))
    if "address_space" in faults:
        resource.setrlimit(resource.RLIMIT_AS, (faults["address_space"],) * 2)
    if "file_limit" in faults:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (faults["file_limit"],) * 2)


def put(owner: object, name: str, new: Callable[..., Any]) -> None:
    """Replace a function of this process; the process ends with its job, so nothing is put back."""
    setattr(owner, name, new)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _draw_nothing(run: RunDir) -> list[Any]:
    return []


def _at(count: int, deed: Callable[[], None], kinds: tuple[str, ...]) -> None:
    """Do it in place of the n-th operation of these kinds."""
    left, all_kinds = count, kinds != CHANGES

    def note() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            deed()

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            note()
            return operation(*args, **options)

        return call

    open_file = os.open

    def counted_open(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if all_kinds or flags & os.O_CREAT:
            note()
        return open_file(path, flags, *args, **options)

    put(os, "open", counted_open)
    for name in kinds:
        put(os, name, counted(getattr(os, name)))
    # Logs go through Python's buffered files, whose system calls are out of reach from here.
    for name in ("write", "sync", "close") if all_kinds else ("write",):
        put(LogFile, name, counted(getattr(LogFile, name)))


def _tear(count: int) -> None:
    left = count
    write, log = os.write, LogFile.write

    def torn_write(handle: int, data: Any) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            write(handle, data[: len(data) // 2])
            die()
        return write(handle, data)

    def torn_log(file: LogFile, record: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            write(file._file.fileno(), repr(record).encode()[:9])
            die()
        log(file, record)

    put(os, "write", torn_write)
    put(LogFile, "write", torn_log)


def _stop_at(update: int, number: int, hurry_at: int) -> None:
    left = update

    def send() -> None:
        os.kill(os.getpid(), number)

    def stopping(before: Callable[..., Metrics]) -> Callable[..., Metrics]:
        def stopped(learner: object, *asked: object) -> Metrics:
            nonlocal left
            left -= 1
            if left == 0:
                if hurry_at:
                    _at(hurry_at, send, CHANGES)
                send()
            return before(learner, *asked)

        return stopped

    put(Learner, "update", stopping(Learner.update))
