"""A column file that grows: open at its end, digested on the way."""

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from understudy.data.episode import Array
from understudy.data.fingerprint import ColumnFacts
from understudy.data.stores.journal import Layout
from understudy.data.stores.npy import PIECE


@final
@dataclass
class Growing:
    """The handle is its owner's to close."""

    handle: int
    rows: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def append(self, values: Array) -> memoryview:
        content = np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")
        self.digest.update(content)
        write_all(self.handle, content)
        self.rows += len(values)
        return content

    def cut(self, start: int, size: int) -> None:
        """Cut the file behind its whole rows, digest them, and stand at the end."""
        os.ftruncate(self.handle, start + size)
        os.lseek(self.handle, start, os.SEEK_SET)
        while piece := os.read(self.handle, PIECE):
            self.digest.update(piece)

    def finish(self, layout: Layout, name: str) -> ColumnFacts:
        os.pwrite(self.handle, layout.header(name, self.rows), 0)
        os.fsync(self.handle)
        dtype, row = layout.rows[name]
        return ColumnFacts(dtype, (self.rows, *row), self.digest.hexdigest())


def write_all(handle: int, content: bytes | memoryview) -> None:
    """All of it: a disk that fills up takes a part without a word, and tells with the next one."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
