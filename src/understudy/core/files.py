"""Files that are either the old one or the new one, never half of each.

Every byte the library keeps goes through here: written to a sibling, fsynced, renamed, directory fsynced.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from understudy.core.errors import UnderstudyError
from understudy.core.lock import hold, release
from understudy.core.siblings import new_sibling, sibling, sweep

CHUNK = 1 << 22
JSON_LIMIT = 16 << 20
"""Bytes of a JSON file: ours have thousands, and a file of gigabytes is read by nobody."""


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` atomically and durably."""
    sweep(path.parent)
    try:
        draft, handle = new_sibling(path)
        try:
            _fill(handle, content)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            release(handle)
        sync_directory(path.parent)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_new(path: Path, content: bytes) -> None:
    """Create `path`, write and fsync it; for files inside a folder that is renamed as a whole later."""
    handle = _create(path)
    try:
        with naming(path):
            _fill(handle, content)
    finally:
        os.close(handle)


def _create(path: Path) -> int:
    """A file that nobody else has a name for: what lies there, a link perhaps, is removed and not written into."""
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, new, 0o644)
    except FileExistsError:
        path.unlink()
        return os.open(path, new, 0o644)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system name the file: a full disk does not say which one it was."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _fill(handle: int, content: bytes) -> None:
    write_all(handle, content)
    os.fsync(handle)


def write_all(handle: int, content: bytes) -> None:
    """Every byte of it: the system may take fewer at a time."""
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view[:CHUNK]) :]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_bytes(path, json_bytes(content))


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys and a final newline: the same content gives the same bytes."""
    return (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def read_bytes(path: Path, limit: int | None = None, *, links: bool = True) -> bytes:
    """The content of a regular file; a pipe, a device, or a file of more than `limit` bytes is an OSError, and unread.

    `links` are followed, as those of a shared cache of files must be; what counts is what they lead to.
    """
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"Larger than {limit:,} bytes", str(path))
        content = file.read(size + 1)
    if len(content) != size:
        raise OSError(errno.EIO, "Not as long as it said", str(path))
    return content


@contextmanager
def open_regular(path: Path, *, links: bool) -> Iterator[BufferedReader]:
    """A file to read from; a pipe or a device is an OSError, and so is a link unless `links` are followed."""
    flags = os.O_RDONLY | os.O_NONBLOCK  # to open a pipe would wait for its writer
    handle = os.open(path, flags if links else flags | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    return _object(path, _content(path, JSON_LIMIT))


def _content(path: Path, limit: int) -> bytes:
    try:
        return read_bytes(path, limit)
    except FileNotFoundError as error:
        raise UnderstudyError(str(path), "no such file") from error
    except OSError as error:
        raise UnderstudyError(str(path), f"not readable ({error.strerror})") from error


def _object(path: Path, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise UnderstudyError(str(path), f"not readable as JSON ({error})") from error
    if not isinstance(content, dict):
        raise UnderstudyError(str(path), "wrong content", got=type(content).__name__, expected="a JSON object")
    return content


def publish_directory(draft: Path, final: Path) -> None:
    """Give a finished draft folder its final name; after this returns it survives a power cut."""
    sync_directory(draft)
    draft.rename(final)
    sync_directory(final.parent)


def replace_directory(draft: Path, final: Path) -> None:
    """Publish a draft in place of what has its name; that is removed only when the new one is there."""
    if not os.path.lexists(final):  # a dead link has the name, too
        publish_directory(draft, final)
        return
    doomed = sibling(final, "old")
    handle = _held_if_folder(final)
    try:
        final.rename(doomed)
        publish_directory(draft, final)
        discard(doomed)
    finally:
        if handle is not None:
            release(handle)


def remove_directory(path: Path) -> None:
    """Remove a folder so that a crash on the way leaves nothing that looks whole."""
    sweep(path.parent)
    doomed = sibling(path, "old")
    handle = _held_if_folder(path)
    try:
        path.rename(doomed)
        discard(doomed)
    finally:
        if handle is not None:
            release(handle)


def _held_if_folder(path: Path) -> int | None:
    """The lock that keeps others from sweeping what is being removed; a dead link has none."""
    try:
        return hold(path)
    except OSError:
        return None


def discard(path: Path) -> None:
    """Remove whatever lies at `path`: damage may have put a file or a link where a folder belongs."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in file_chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seal(content: Mapping[str, Any]) -> bytes:
    """JSON that carries the sha256 of itself, so that any changed byte is noticed by `read_sealed`."""
    body = dict(content)
    return json_bytes({**body, "seal": sha256_bytes(json_bytes(body))})


def read_sealed(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """What `seal` wrote, or an error if a byte of it changed."""
    text = _content(path, limit)
    content = _object(path, text)
    content.pop("seal", None)
    try:
        whole = text == seal(content)
    except (ValueError, RecursionError) as error:
        raise UnderstudyError(str(path), f"not readable ({error})") from error
    if not whole:
        raise UnderstudyError(str(path), "was changed or damaged after it was written (its seal does not fit)")
    return content
