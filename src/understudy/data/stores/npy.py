"""Column files: the .npy format with a header whose length does not depend on the number of rows.

A column can therefore grow while it is recorded, and its header is put right at the end.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from math import prod
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


Judge = Callable[[Array, int], None]
"""Raises if some rows of a column cannot be; the number is that of the first."""


def map_column(file: Path, facts: ColumnFacts, where: str, *, verify: bool, judge: Judge | None = None) -> Array:
    """A column file as an array, mapped. The header must be the expected one to the byte.

    `verify` reads the rest once: its digest must be that of the manifest, and then `judge` must not object.
    """
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
        if verify:
            _verify(content, facts, where, judge)
    if count == 0:
        return np.empty(facts.shape, dtype)
    # Copy-on-write: torch wants writable memory, and nothing may ever reach the file.
    return np.memmap(file, dtype, mode="c", offset=len(header), shape=facts.shape)


def _verify(content: BinaryIO, facts: ColumnFacts, where: str, judge: Judge | None) -> None:
    """Digest and judge in one pass; a damaged file is told as that, whatever its numbers look like."""
    digest, row = hashlib.sha256(), 0
    dtype, shape = np.dtype(facts.dtype), facts.shape[1:]
    size = dtype.itemsize * prod(shape)
    objection: DataError | None = None
    while size and (piece := content.read(max(1, PIECE // size) * size)):
        digest.update(piece)
        if judge is not None and objection is None:
            try:
                judge(np.frombuffer(piece, dtype).reshape(-1, *shape), row)
            except DataError as error:
                objection = error
        row += len(piece) // size
    if digest.hexdigest() != facts.sha256:
        raise DataError(where, "was changed or damaged after it was written (sha256 differs)")
    if objection is not None:
        raise objection
