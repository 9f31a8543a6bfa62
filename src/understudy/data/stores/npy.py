"""Column files: the .npy format with a header whose length does not depend on the number of rows.

A column can therefore grow while it is recorded, and its header is put right at the end.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from understudy.core.errors import DataError
from understudy.data.episode import Array
from understudy.data.fingerprint import ColumnFacts

ALIGNMENT = 64
LARGEST = 10**19
"""More rows than there will ever be: the header keeps room for their number."""
PIECE = 1 << 22


def npy_header(dtype: "np.dtype[np.generic]", shape: tuple[int, ...]) -> bytes:
    """Format 1.0; equal in length for any first dimension."""
    text, longest = (_layout(dtype, (rows, *shape[1:])) for rows in (shape[0], LARGEST))
    prefix = npy_format.magic(1, 0)
    length = -(-(len(prefix) + 2 + len(longest) + 1) // ALIGNMENT) * ALIGNMENT - len(prefix) - 2
    return prefix + length.to_bytes(2, "little") + text.ljust(length - 1).encode("latin1") + b"\n"


def _layout(dtype: "np.dtype[np.generic]", shape: tuple[int, ...]) -> str:
    return repr({"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})


def write_column(file: Path, column: Array, blocks: Iterable[Array]) -> ColumnFacts:
    """Stream a column into a new file, in bounded memory and durably."""
    digest = hashlib.sha256()
    with file.open("xb") as out:
        out.write(npy_header(column.dtype, column.shape))
        for block in blocks:
            digest.update(block.data)
            out.write(block.data)
        out.flush()
        os.fsync(out.fileno())
    return ColumnFacts(column.dtype.name, column.shape, digest.hexdigest())


def map_column(file: Path, facts: ColumnFacts, where: str, *, verify: bool) -> Array:
    """A column file as an array, mapped. The header must be the expected one to the byte; `verify` reads the rest."""
    dtype = np.dtype(facts.dtype)
    header = npy_header(dtype, facts.shape)
    count = int(np.prod(facts.shape, dtype=object))
    if not file.is_file():
        raise DataError(where, "its file is missing")
    with file.open("rb") as content:
        if content.read(len(header)) != header or file.stat().st_size != len(header) + count * dtype.itemsize:
            raise DataError(
                where,
                "was changed or damaged after it was written: header or size do not match the manifest",
                expected=f"{facts.dtype} {list(facts.shape)}",
            )
        if verify and _digest(content) != facts.sha256:
            raise DataError(where, "was changed or damaged after it was written (sha256 differs)")
    if count == 0:
        return np.empty(facts.shape, dtype)
    # Copy-on-write: torch wants writable memory, and nothing may ever reach the file.
    return np.memmap(file, dtype, mode="c", offset=len(header), shape=facts.shape)


def _digest(content: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := content.read(PIECE):
        digest.update(piece)
    return digest.hexdigest()
