"""Drafts: hidden folders beside what they become, held by their writer and swept by the next one if it died.

A draft is `.<name>.<pid>.<kind>` beside `<name>`. Whether its writer lives is told by the lock on the folder, not by
the number: in a container every process may have the same.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.core.errors import DataError
from understudy.core.files import publish_directory, sync_directory
from understudy.core.lock import hold_folder, release

KINDS = ("draft", "file", "store", "original")
ATTEMPTS = 100
"""Nobody is swept so often."""


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A draft to fill; left in peace it becomes `path`, left by an error it is removed."""
    with working_folder(path, "draft") as draft:
        yield draft
        publish_directory(draft, path)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A draft to write and sync; left in peace it becomes `path`, left by an error it is removed."""
    with working_folder(path, "file") as folder:
        yield folder / path.name
        (folder / path.name).rename(path)
        sync_directory(path.parent)


@contextmanager
def working_folder(path: Path, kind: str) -> Iterator[Path]:
    """A hidden folder beside `path`, removed afterwards; errors of the file system name `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(str(path), f"cannot be written: '{error.filename}' is a file, not a folder") from error
    sweep(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{kind}")
    handle = _claim(draft, path)
    try:
        yield draft
    except OSError as error:
        if error.errno is not None and (error.filename is None or str(error.filename).startswith(str(draft))):
            error.filename = str(path)  # a full disk does not say which file it was
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        release(handle)


def sweep(path: Path) -> None:
    """Remove drafts of `path` whose writers are dead."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.\d+\.({'|'.join(KINDS)})")
    for entry in path.parent.iterdir():
        if ours.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink():
            try:
                handle = hold_folder(entry)
            except OSError:  # held, gone by now, or kept where nothing can be locked
                continue
            shutil.rmtree(entry, ignore_errors=True)
            release(handle)


def _claim(draft: Path, path: Path) -> int:
    """A new folder, held. Somebody may sweep it before it is: then it is made again."""
    for _ in range(ATTEMPTS):
        try:
            draft.mkdir()
        except FileExistsError:
            break
        try:
            handle = _hold(draft)
        except (BlockingIOError, FileNotFoundError):
            continue
        if draft.exists() and os.path.samestat(os.fstat(handle), draft.stat()):
            return handle
        release(handle)
    raise DataError(str(path), "another process is writing it", do="Wait for it, or choose another name.")


def _hold(draft: Path) -> int:
    try:
        return hold_folder(draft)
    except (BlockingIOError, FileNotFoundError):
        raise
    except OSError:  # a file system without locks: nobody will sweep there either
        return os.open(draft, os.O_RDONLY)
