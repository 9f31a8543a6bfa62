"""Files that are either the old one or the new one, never half of each.

Every byte the library keeps goes through here: written to a sibling, fsynced, renamed, directory fsynced.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from understudy.core.errors import UnderstudyError
from understudy.core.lock import hold
from understudy.core.siblings import new_sibling, sibling, sweep

CHUNK = 1 << 22


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
            os.close(handle)
        sync_directory(path.parent)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_new(path: Path, content: bytes) -> None:
    """Create `path`, write and fsync it; for files inside a folder that is renamed as a whole later."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _fill(handle, content)
    except OSError as error:
        error.filename = str(path)  # a full disk does not say which file it was
        raise
    finally:
        os.close(handle)


def _fill(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view[:CHUNK]) :]
    os.fsync(handle)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_bytes(path, json_bytes(content))


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys and a final newline: the same content gives the same bytes."""
    return (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnderstudyError(str(path), "no such file") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UnderstudyError(str(path), f"not readable as JSON ({error})") from error
    if not isinstance(content, dict):
        raise UnderstudyError(str(path), "wrong content", got=type(content).__name__, expected="a JSON object")
    return content


def publish_directory(draft: Path, final: Path) -> None:
    """Give a finished draft folder its final name; after this returns it survives a power cut."""
    sync_directory(draft)
    draft.rename(final)
    sync_directory(final.parent)


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
            os.close(handle)


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


def read_sealed(path: Path) -> dict[str, Any]:
    """What `seal` wrote, or an error if a byte of it changed."""
    content = read_json(path)
    content.pop("seal", None)
    try:
        whole = path.read_bytes() == seal(content)
    except (OSError, ValueError, RecursionError) as error:
        raise UnderstudyError(str(path), f"not readable ({error})") from error
    if not whole:
        raise UnderstudyError(str(path), "was changed or damaged after it was written (its seal does not fit)")
    return content
