"""One writer per folder: a lock that the kernel frees when its holder dies, however it dies."""

import fcntl
import os
from pathlib import Path

from understudy.core.errors import UnderstudyError

LOCK = ".lock"


def hold(path: Path) -> int:
    """A lock on a file or folder itself, which puts nothing beside it; BlockingIOError, if another holds it."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def try_hold(handle: int) -> bool:
    """The same of an open file; False, if another holds it. Where nothing can be locked nobody does."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def lock_folder(folder: Path, refusal: type[UnderstudyError], where: str, do: str) -> int:
    """The lock of an existing folder; it is held until the handle is closed. Held by another, it is a `refusal`."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 64).decode(errors="replace").strip()
            told = f"another process{f' (pid {holder})' if holder else ''} is writing it"
            raise refusal(where, told, do=do) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle
