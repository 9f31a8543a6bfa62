"""Segments: rows in files that are written once and named by their sha256, so that many checkpoints can share them.

Nothing is ever changed in such a file. It is removed when no kept checkpoint names it and nobody in this process,
a guard that may rewind for example, holds it.
"""

import errno
import hashlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from understudy.core.errors import CheckpointError
from understudy.core.files import open_regular, read_bytes, sha256_bytes, write_bytes

Rows = dict[str, Tensor]
"""Columns by name, each [B, …]."""
SUFFIX = ".safetensors"
DIGEST = r"^[0-9a-f]{64}$"
FILE_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
HEADER_LIMIT = 1 << 16
"""Bytes that a file of rows may have besides them."""


@final
@dataclass(eq=False)
class SegmentFolder:
    """Where segments lie."""

    path: Path
    named: Collection[str] | None = None
    """The sha256 that kept checkpoints name; None where nobody said, and then nothing is removed."""

    @classmethod
    def temporary(cls) -> "SegmentFolder":
        """For rows of no run: a folder that goes when the last segment in it does."""
        folder = cls(Path(tempfile.mkdtemp(prefix="understudy-")), named=())
        weakref.finalize(folder, shutil.rmtree, folder.path, ignore_errors=True)
        return folder

    def create(self) -> None:
        """Make it; where a whole run directory was deleted, nothing of it comes back."""
        for folder in (self.path.parent, self.path):
            folder.mkdir(exist_ok=True)

    def file(self, sha256: str) -> Path:
        return self.path / f"{sha256}{SUFFIX}"

    def write(self, rows: Mapping[str, Tensor]) -> str:
        """The sha256 of a new file with these rows; one that is there already is replaced by its equal."""
        return self.write_content(encode(rows))

    def write_content(self, content: bytes) -> str:
        sha256 = sha256_bytes(content)
        self.create()
        write_bytes(self.file(sha256), content)
        return sha256

    def read_content(self, sha256: str, limit: int) -> bytes:
        """The bytes of a file of this name, if they are what was written; links are not followed."""
        with _telling(sha256):
            content = read_bytes(self.file(sha256), limit, links=False)
        _compare(sha256_bytes(content), sha256)
        return content

    def check(self, sha256: str) -> None:
        """The same without the bytes, in little memory."""
        with _telling(sha256), open_regular(self.file(sha256), links=False) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        _compare(found, sha256)

    def read(self, sha256: str, row: Mapping[str, Tensor], count: int) -> Rows:
        """`count` rows like `row`; a file of more is refused before there is memory for it."""
        content = self.read_content(sha256, HEADER_LIMIT + count * sum(tensor.nbytes for tensor in row.values()))
        try:
            rows = load_tensors(content)
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(_called(sha256), f"not readable ({error})") from error
        expected = {name: (tensor.dtype, (count, *tensor.shape)) for name, tensor in row.items()}
        if {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in rows.items()} != expected:
            raise CheckpointError(_called(sha256), f"holds other rows than the {count:,} that are due")
        return rows

    def collect(self) -> None:
        """Remove the files that no kept checkpoint names and nobody holds."""
        if self.named is None or not self.path.is_dir():
            return
        needed = {*self.named, *(segment.sha256 for segment in set(_HELD))}
        for file in self.path.iterdir():
            if FILE_NAME.fullmatch(file.name) and file.stem not in needed:
                file.unlink(missing_ok=True)


def encode(rows: Mapping[str, Tensor]) -> bytes:
    """What a file of these rows holds."""
    return save_tensors({name: rows[name].contiguous() for name in sorted(rows)})


@contextmanager
def _telling(sha256: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = "is a link" if error.errno == errno.ELOOP else f"missing or damaged ({error.strerror})"
        raise CheckpointError(_called(sha256), what) from error


def _compare(found: str, sha256: str) -> None:
    if found != sha256:
        raise CheckpointError(_called(sha256), "damaged: its sha256 differs")


def _called(sha256: str) -> str:
    return f"segment {sha256[:12]}…"


@final
class Segment:
    """Rows of a large state that follow one another: in a file, or in its memory until there are enough of them."""

    def __init__(self) -> None:
        self.folder: SegmentFolder | None = None
        self.sha256 = ""
        self.count = 0
        """Rows in the file."""
        self.draft: Segment | None = None
        """What a checkpoint wrote of it before it was full."""
        _HELD.add(self)

    @classmethod
    def written(cls, folder: SegmentFolder, sha256: str, count: int) -> "Segment":
        segment = cls()
        segment.place(folder, sha256, count)
        return segment

    def place(self, folder: SegmentFolder, sha256: str, count: int) -> None:
        self.folder, self.sha256, self.count, self.draft = folder, sha256, count, None


_HELD: "weakref.WeakSet[Segment]" = weakref.WeakSet()
"""Every segment of this process."""
