"""One writer per folder: a lock that the kernel frees when its holder dies, however it dies.

A lock belongs to an open file, and a fork shares the open files of its parent: a child would go on holding what its
dead parent held. So every process that Python forks lets go of them, whoever forked it and for what.
"""

import fcntl
import os
import time
from pathlib import Path

from understudy.core.errors import UnderstudyError

LOCK = ".lock"
ATTEMPTS, PAUSE = 5, 0.02
"""Who only asks whether a folder is held holds its lock for an instant: a writer tries again."""
_held: set[int] = set()
"""Handles of the locks this process holds, or is about to."""


def _let_go() -> None:
    """In a new child: its copies lead nowhere, and stay open, so that whoever closes them there closes nothing else."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for handle in _held:
        os.dup2(nowhere, handle, inheritable=False)
    os.close(nowhere)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


def hold(path: Path) -> int:
    """A lock on a file or folder itself, which puts nothing beside it; BlockingIOError, if another holds it."""
    return _locked(_open(path, os.O_RDONLY | os.O_NONBLOCK))


def hold_file(path: Path) -> int:
    """The same of a file that is made if it is not there, and opened for writing: file systems that several machines
    share (NFS) lock nothing else."""
    return _locked(_open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK))


def _locked(handle: int) -> int:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        release(handle)
        raise
    return handle


def try_hold(handle: int) -> bool:
    """The same of an open file; False, if another holds it. Where nothing can be locked nobody does.

    In either case it is closed by `release`.
    """
    _held.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def lock_folder(folder: Path, refusal: type[UnderstudyError], where: str, do: str) -> int:
    """The lock of an existing folder; it is held until it is released. Held by another, it is a `refusal`."""
    handle = _open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            _lock_patiently(handle)
        except OSError as error:
            holder = os.read(handle, 64).decode(errors="replace").strip()
            told = f"another process{f' (pid {holder})' if holder else ''} is writing it"
            raise refusal(where, told, do=do) from error
        if os.fstat(handle).st_nlink == 0:  # its holder went, and took the folder along
            raise refusal(where, "another process was just leaving it", do="Try again.")
        if os.fstat(handle).st_nlink == 1:  # under another name its content may be somebody else's
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
    except BaseException:
        release(handle)
        raise
    return handle


def _lock_patiently(handle: int) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE)


def is_locked(folder: Path) -> bool:
    """Somebody holds the lock of a folder."""
    try:
        handle = _open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        release(handle)
    return False


def _open(path: Path, flags: int) -> int:
    """A handle that no child keeps, noted before it is locked: another thread may fork at any time."""
    handle = os.open(path, flags | os.O_NOFOLLOW, 0o644)
    _held.add(handle)
    return handle


def release(handle: int) -> None:
    """Let go of a lock, or close any other handle."""
    _held.discard(handle)
    os.close(handle)
