"""Datasets of a stranger's HDF5 file, checked before a number of them is read."""

import zlib
from itertools import product
from math import ceil, prod
from typing import Any, final

import numpy as np

from understudy.core.errors import DataError
from understudy.data.episode import Array

SMALL = 64 << 20
EXPANSION_LIMIT = 100
"""Beyond `SMALL`, a file that unfolds to more than this many times its own size is a bomb, not a recording."""
LINK_LIMIT = 1_000_000
DEFLATE_LIMIT = 1032
"""Deflate unfolds to at most this many times its input."""
HARMLESS = 256 << 20
"""A chunk that cannot unfold beyond this is not looked at twice, which would double the time of usual files."""
PACKERS = {"gzip", "lzf", "szip"}
UNREADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    SystemError,
)
"""What h5py raises on damaged files."""


def check_unfolded(amount: int, limit: int, where: str) -> None:
    """What a reader is about to unfold from a file stays within what such a file can honestly hold."""
    if amount > limit:
        raise DataError(
            where, "refused as a bomb", got=f"{amount:,} bytes", expected=f"at most {limit:,} from this file"
        )


def unfold_limit(size: int) -> int:
    """How many bytes a file of `size` may unfold to."""
    return max(SMALL, EXPANSION_LIMIT * size)


@final
class Told:
    """Errors of the HDF5 library in our words, naming the place."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UNREADABLE):
            lines = str(error).splitlines() or [type(error).__name__]
            raise DataError(
                self._where, f"not readable as HDF5 ({lines[0]})", do="The file is damaged or incomplete."
            ) from error


@final
class Ledger:
    """What has been taken from one file so far, against what it can honestly hold."""

    def __init__(self, h5py: Any, file: Any, size: int, where: str) -> None:
        self.h5py = h5py
        self.file = file
        self.size = size
        self.where = where
        self.links = 0
        self.declared = 0
        self.filters = {
            h5py.h5z.FILTER_DEFLATE: "gzip",
            h5py.h5z.FILTER_LZF: "lzf",
            h5py.h5z.FILTER_SHUFFLE: "shuffle",
            h5py.h5z.FILTER_FLETCHER32: "fletcher32",
        }
        if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
            self.filters[h5py.h5z.FILTER_SZIP] = "szip"

    def count_links(self, count: int) -> None:
        self.links += count
        if self.links > LINK_LIMIT:
            raise DataError(self.where, "has too many members", expected=f"at most {LINK_LIMIT:,}")

    def count_bytes(self, amount: int) -> None:
        self.declared += amount
        if self.declared > unfold_limit(self.size):
            raise DataError(
                self.where, "refused as a bomb", got=f"{self.size:,} bytes that unfold to {self.declared:,} or more"
            )


@final
class Hdf5Column:
    """Rows of plain numbers [N, …], read slice by slice."""

    def __init__(self, ident: Any, where: str, ledger: Ledger) -> None:
        self.where = where
        self._ledger = ledger
        with Told(where):
            _check_place(ident, where, ledger)
            _check_numbers(ident, where, ledger)
            self._ident = ident
            self.shape: tuple[int, ...] = tuple(map(int, ident.shape))
            self.dtype: np.dtype[Any] = np.dtype(ident.dtype).newbyteorder("=")
            self._deflated = "gzip" in _check_filters(ident, where, ledger)
            self._chunk = _check_written(ident, self.shape, self.dtype.itemsize, where, ledger)
        self._inflated: set[tuple[int, ...]] = set()

    def __len__(self) -> int:
        if not self.shape:
            raise DataError(self.where, "a single number where rows belong")
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """Rows `first:end`, in the machine's byte order."""
        first, end, _ = rows.indices(len(self))
        return self._read(first, end)

    def whole(self) -> Array:
        """All of it; a single number too."""
        return self._read(0, self.shape[0] if self.shape else 1)

    def _read(self, first: int, end: int) -> Array:
        """By the library's own calls: for small datasets, h5py's indexing costs several times the read."""
        h5s = self._ledger.h5py.h5s
        with Told(self.where):
            if self._deflated and first < end:
                self._check_deflated(first, end)
            rows: Array = np.empty((max(0, end - first), *self.shape[1:]) if self.shape else (), self.dtype)
            place = memory = h5s.ALL
            if self.shape and rows.shape != self.shape:
                place, memory = self._ident.get_space(), h5s.create_simple(rows.shape)
                place.select_hyperslab((first, *(0 for _ in self.shape[1:])), rows.shape)
            if rows.size:
                self._ident.read(memory, place, rows)
            # a damaged flag may hold a byte that is neither 0 nor 1
            return np.asarray(rows.view(np.uint8) != 0) if rows.dtype == np.bool_ else rows

    def _check_deflated(self, first: int, end: int) -> None:
        """HDF5 lets a packed chunk grow without bound; look that it ends where the chunk does, once for each."""
        assert self._chunk is not None
        starts = [range(0, length, size) for length, size in zip(self.shape, self._chunk, strict=True)]
        starts[0] = range(first - first % self._chunk[0], end, self._chunk[0])
        size = prod(self._chunk) * self.dtype.itemsize
        for place in product(*starts):
            if place not in self._inflated:
                self._check_chunk(place, size)
                self._inflated.add(place)

    def _check_chunk(self, place: tuple[int, ...], size: int) -> None:
        packed = int(self._ident.get_chunk_info_by_coord(place).size)
        if packed > self._ledger.size:
            raise DataError(self.where, "a part of it is larger than the file", got=f"{packed:,} bytes")
        if packed * DEFLATE_LIMIT <= HARMLESS:
            return
        _, raw = self._ident.read_direct_chunk(place)
        decoder = zlib.decompressobj()
        try:
            grown = len(decoder.decompress(raw, size + 1))
        except zlib.error:
            return  # not deflated after all (a filter may be left out of a chunk), or damaged: HDF5 will tell
        if grown > size:
            raise DataError(
                self.where, "refused as a bomb", got=f"a part of {packed:,} bytes that unfolds beyond {size:,}"
            )


@final
class Hdf5ByteRows:
    """Rows of bytes, each of its own length, read one at a time."""

    def __init__(self, ident: Any, where: str, ledger: Ledger) -> None:
        self.where = where
        h5t = ledger.h5py.h5t
        with Told(where):
            _check_place(ident, where, ledger)
            kind = ident.get_type()
            if kind.get_class() != h5t.VLEN or not kind.get_super().equal(h5t.NATIVE_UINT8) or ident.rank != 1:
                raise DataError(where, "not rows of bytes", got=ident.dtype)
            _check_filters(ident, where, ledger)
            _check_written(ident, ident.shape, kind.get_size(), where, ledger)
            self._data = ledger.h5py.Dataset(ident)
            self._rows = int(ident.shape[0])

    def __len__(self) -> int:
        return self._rows

    def row(self, number: int) -> bytes:
        with Told(self.where):
            return bytes(np.asarray(self._data[number], np.uint8).data)


def read_words(ident: Any, where: str, ledger: Ledger) -> list[str]:
    """Texts of one length [n]; those of any length are refused, as reading them may take any memory."""
    with Told(where):
        _check_place(ident, where, ledger)
        kind = ident.get_type()
        if kind.is_variable_str() or ident.rank != 1:
            raise DataError(where, "refused", got="texts of any length", expected="texts of one length")
        _check_filters(ident, where, ledger)
        _check_written(ident, ident.shape, kind.get_size(), where, ledger)
        texts: Array = np.empty(ident.shape, f"S{kind.get_size()}")
        if texts.size:
            ident.read(ledger.h5py.h5s.ALL, ledger.h5py.h5s.ALL, texts)
        return [bytes(text).decode("utf-8", "replace") for text in texts]


def _check_place(ident: Any, where: str, ledger: Ledger) -> None:
    """The numbers lie in this file."""
    plan = ident.get_create_plist()
    h5d = ledger.h5py.h5d
    layout = plan.get_layout()
    if layout == h5d.VIRTUAL:
        raise DataError(where, "refused", got="a virtual dataset made of other files", expected="data inside this file")
    if layout not in {h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED}:
        raise DataError(where, "refused", got="an unknown storage layout")
    if plan.get_external_count():
        raise DataError(where, "refused", got="data stored in another file", expected="data inside this file")
    if ident.get_space().get_simple_extent_type() not in {ledger.h5py.h5s.SIMPLE, ledger.h5py.h5s.SCALAR}:
        raise DataError(where, "is declared but empty")


def _check_numbers(ident: Any, where: str, ledger: Ledger) -> None:
    h5t = ledger.h5py.h5t
    kinds = {
        h5t.VLEN: "values of variable length",
        h5t.REFERENCE: "references to other objects",
        h5t.COMPOUND: "compound records",
        h5t.STRING: "text",
        h5t.OPAQUE: "opaque bytes",
        h5t.ARRAY: "arrays as elements",
        h5t.TIME: "times",
    }
    kind = ident.get_type().get_class()
    if kind not in {h5t.INTEGER, h5t.FLOAT, h5t.ENUM, h5t.BITFIELD}:
        raise DataError(where, "refused", got=kinds.get(kind, "an unknown type"), expected="plain numbers")
    dtype = np.dtype(ident.dtype)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise DataError(where, "refused", got=dtype, expected="numbers of at most 8 bytes")


def _check_filters(ident: Any, where: str, ledger: Ledger) -> list[str]:
    plan = ident.get_create_plist()
    codes = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    names = [ledger.filters.get(code, f"filter {code}") for code in codes]
    for code, name in zip(codes, names, strict=True):
        if code not in ledger.filters:
            known = ", ".join(sorted(ledger.filters.values()))
            raise DataError(where, "uses a filter we do not read", got=name, expected=known, do="Repack it with gzip.")
    if len(PACKERS.intersection(names)) > 1 or len(names) != len(set(names)):
        raise DataError(where, "refused", got=f"the filters {', '.join(names)}", expected="packed at most once")
    return names


def _check_written(
    ident: Any, shape: tuple[int, ...], itemsize: int, where: str, ledger: Ledger
) -> tuple[int, ...] | None:
    """What is declared was written (unwritten parts would read as zeros) and is no bomb; the chunk shape, if any."""
    plan = ident.get_create_plist()
    declared = prod(shape) * itemsize
    ledger.count_bytes(declared)
    if plan.get_layout() != ledger.h5py.h5d.CHUNKED:
        if ident.get_storage_size() < declared:
            raise DataError(where, "was never written", got=f"{ident.get_storage_size():,} of {declared:,} bytes")
        return None
    chunk = tuple(map(int, plan.get_chunk()))
    ledger.count_bytes(max(0, prod(chunk) * itemsize - declared))
    expected = prod(ceil(length / size) for length, size in zip(shape, chunk, strict=True))
    if ident.get_num_chunks() < expected:
        raise DataError(where, "parts of it were never written", got=f"{ident.get_num_chunks()} of {expected} chunks")
    return chunk
