"""The lock of a folder is its holder's alone: nobody it forks keeps it, however the holder lets go."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from understudy.core.errors import RunError
from understudy.core.lock import hold, lock_folder, release


@contextmanager
def sleeping_child() -> Iterator[None]:
    """A fork that has begun to do nothing."""
    here, there = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(there, b"!")
        signal.pause()
        os._exit(0)
    os.read(here, 1)
    try:
        yield
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(here)
        os.close(there)


def lock(folder: Path) -> int:
    return lock_folder(folder, RunError, "folder", "Wait.")


def test_a_fork_does_not_keep_a_lock(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    folder.mkdir()
    handles = lock(tmp_path), hold(folder)
    with sleeping_child():
        with pytest.raises(RunError, match=rf"another process \(pid {os.getpid()}\) is writing it"):
            lock(tmp_path)
        for handle in handles:
            release(handle)
        for handle in (lock(tmp_path), hold(folder)):
            release(handle)


def test_a_fork_keeps_everything_else(tmp_path: Path) -> None:
    """Also what was opened under the number of a lock that is no longer held."""
    release(lock(tmp_path))
    handle = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    held = lock(tmp_path)
    process = os.fork()
    if process == 0:
        os.write(handle, b"written")
        release(held)
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    assert (tmp_path / "file").read_bytes() == b"written"
    with pytest.raises(RunError, match="is writing it"):
        lock(tmp_path)
    release(held)
    os.close(handle)


PARENT = """
import os, signal, sys
from pathlib import Path
from understudy.core.errors import RunError
from understudy.core.lock import lock_folder
lock_folder(Path(sys.argv[1]), RunError, "folder", "")
if os.fork() == 0:
    print(os.getpid(), flush=True)
signal.pause()
"""


def test_a_lock_is_free_as_soon_as_its_holder_is_dead(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    with pytest.raises(RunError, match=rf"pid {process.pid}"):
        lock(tmp_path)
    process.kill()
    process.wait()
    try:
        release(lock(tmp_path))
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
