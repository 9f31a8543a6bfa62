"""One writer per folder: a lock that the kernel frees when its holder dies, however it dies."""

import fcntl
import os
from pathlib import Path

from understudy.core.errors import UnderstudyError

LOCK = ".lock"


def hold_folder(folder: Path) -> int:
    """A lock on the folder itself, which puts no file into it; BlockingIOError, if another holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


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
        if os.fstat(handle).st_nlink == 1:  # under another name its content may be somebody else's
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle
