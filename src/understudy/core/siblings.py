"""Hidden siblings: what is being written or removed is `.<name>.<pid>.understudy.<kind>` beside `<name>`.

Its owner holds a lock on it that dies with him; the next who writes anything into the same folder sweeps what dead ones
left. The number only makes names differ: in a container every process may have the same.
"""

import os
import re
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from understudy.core.lock import hold, release, try_hold

MARK = "understudy"
KINDS = ("tmp", "old", "draft", "file", "store", "original")
OURS = re.compile(rf"\..+\.\d+\.{MARK}\.({'|'.join(KINDS)})", re.DOTALL)


def sibling(path: Path, kind: str, number: int | None = None) -> Path:
    assert kind in KINDS
    return path.with_name(f".{path.name}.{os.getpid() if number is None else number}.{MARK}.{kind}")


def new_sibling(path: Path) -> tuple[Path, int]:
    """A new file beside `path` to be renamed to it, open for writing and held."""
    for number in count(os.getpid()):
        draft = sibling(path, "tmp", number)
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:  # of another process with our number
            continue
        if try_hold(handle) and is_named(handle, draft):
            return draft, handle
        release(handle)  # somebody swept it before it was held
    raise AssertionError("counting never ends")


def sweep(folder: Path) -> None:
    """Remove what dead writers left in a folder, whatever they were writing."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if OURS.fullmatch(entry.name) and not entry.is_symlink():
                with suppress(OSError):  # held, gone by now, or kept where nothing can be locked
                    _sweep(entry)


def _sweep(entry: Path) -> None:
    handle = hold(entry)
    try:
        if not is_named(handle, entry):  # it was finished, and another began
            return
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    finally:
        release(handle)


def is_named(handle: int, path: Path) -> bool:
    """Whether an open file or folder is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False
