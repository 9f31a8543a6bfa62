"""Column files: the .npy format with a header whose length does not depend on the number of rows.

A column can therefore grow while it is recorded, and its header is put right at the end. Headers of other people's
files are text that NumPy has Python's own parser read: whatever that stumbles over, it is an error of ours.
"""

import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from understudy.core.errors import DataError
from understudy.core.files import read_bytes
from understudy.core.machine_memory import machine_memory
from understudy.data.episode import Array
from understudy.data.fingerprint import ColumnFacts

ALIGNMENT = 64
LARGEST = 10**19
"""More rows than there will ever be: the header keeps room for their number."""
PIECE = 1 << 22
UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, EOFError),
    *(SyntaxError, TokenError, RecursionError, MemoryError, NotImplementedError),
)
"""What NumPy and Python's parser raise on text that is no header."""


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


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    """Shape, whether columns come first, and dtype, from a header of anybody's; a ValueError if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what looks like a mistake in Python
            version = npy_format.read_magic(file)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran_order, dtype = read(file)
    except UNREADABLE as error:
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from error
    return shape, fortran_order, dtype


def read_array(path: Path) -> Array:
    """The one array of a .npy file of plain numbers, read into memory; its header is believed once its size fits."""
    try:
        content = read_bytes(path, machine_memory())
        if zipfile.is_zipfile(io.BytesIO(content)):
            raise DataError(str(path), "an archive", expected="one array in a .npy file")
        file = io.BytesIO(content)
        shape, fortran_order, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("objects, which are stored as pickles")
        if min(shape, default=0) < 0 or len(content) - file.tell() != prod(shape) * dtype.itemsize:
            raise ValueError(f"its {len(content):,} bytes do not hold {dtype} {list(shape)}")
        return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order="F" if fortran_order else "C")
    except OSError as error:
        raise DataError(str(path), f"not a readable .npy file ({error.strerror})") from error
    except (ValueError, MemoryError) as error:
        raise DataError(str(path), f"not a readable .npy file ({error})") from error
