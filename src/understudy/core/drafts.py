"""Drafts: hidden folders beside what they become, held by their writer and swept by the next one if it died."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.core.errors import DataError
from understudy.core.files import publish_directory, sync_directory
from understudy.core.lock import release, try_hold
from understudy.core.siblings import is_named, sibling, sweep

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
    sweep(path.parent)
    draft = sibling(path, kind)
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


def _claim(draft: Path, path: Path) -> int:
    """A new folder, held. Somebody may sweep it before it is: then it is made again."""
    for _ in range(ATTEMPTS):
        try:
            draft.mkdir()
        except FileExistsError:
            break
        try:
            handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        if try_hold(handle) and is_named(handle, draft):
            return handle
        release(handle)
    raise DataError(str(path), "another process is writing it", do="Wait for it, or choose another name.")
