"""Rows of a table, read once from front to back and then in any order: in memory while they are few, else in a
temporary file that is gone with the process."""

import tempfile
from collections.abc import Iterable
from typing import IO, Any, final

import numpy as np

from understudy.data.episode import Array

MEMORY = 64 << 20
"""Bytes of rows that are kept in memory."""


@final
class TableRows:
    """`append` blocks of records, then take `columns`."""

    def __init__(self, record: np.dtype[Any]) -> None:
        self._record = record
        self._blocks: list[Array] = []
        self._file: IO[bytes] | None = None
        self.rows = 0

    def append(self, block: Array) -> None:
        """Some records [k]."""
        self.rows += len(block)
        if self._file is None and self.rows * self._record.itemsize > MEMORY:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            for earlier in self._blocks:
                self._file.write(earlier.tobytes())
            self._blocks.clear()
        if self._file is None:
            self._blocks.append(block)
        else:
            self._file.write(block.tobytes())

    def columns(self) -> dict[str, Array]:
        """Each [n, …]; views, so that a file is only read where somebody looks."""
        if self._file is not None:
            self._file.flush()
            whole: Array = np.memmap(self._file, self._record, "r", shape=(self.rows,))
        else:
            whole = np.concatenate(self._blocks) if self._blocks else np.empty(0, self._record)
        return {name: whole[name] for name in self._record.names or ()}


@final
class WholeNumbers:
    """A column of whole numbers that was kept in floating ones."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self.shape: tuple[int, ...] = column.shape
        self.dtype: np.dtype[Any] = np.dtype(np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice, /) -> Array:
        return np.asarray(self._column[rows]).astype(np.int64)


def label_numbers(labels: Iterable[object], known: dict[object, int]) -> Array:
    """A number for each label, the same for the same one; `known` grows."""
    return np.array([known.setdefault(label, len(known)) for label in labels], np.float64)
