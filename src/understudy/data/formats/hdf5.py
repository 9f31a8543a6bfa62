"""A stranger's HDF5 file, opened so that it can only hand out numbers of its own.

HDF5 files may point at other files, declare terabytes in kilobytes, or hold objects. Nothing is followed, allocated
or decoded here before it was looked at: links are hard links, datasets lie inside this file as plain numbers that
were really written, filters are those everybody has, and all of it unfolds to no more than the file can honestly hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from understudy.core.errors import DataError, MissingPackageError, did_you_mean
from understudy.data.formats.hdf5_column import Hdf5ByteRows, Hdf5Column, Ledger, Told, read_words, unfold_limit
from understudy.data.recording import open_at_once

MAGIC = b"\x89HDF\r\n\x1a\n"
DEPTH_LIMIT = 16
CHUNK_CACHE = 16 << 20


@contextmanager
def open_hdf5_file(path: Path, where: str = "") -> Iterator["Hdf5Group"]:
    """The root group of a file; everything taken from it is closed with it."""
    root = open_hdf5_root(path, where)
    try:
        yield root
    finally:
        root.close()


def open_hdf5_root(path: Path, where: str = "") -> "Hdf5Group":
    """Like `open_hdf5_file`, but open for as long as the root or any column of it is in use."""
    where = where or f"dataset '{path}'"
    h5py = _h5py(where)
    try:
        with open(path, "rb", opener=open_at_once) as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise DataError(where, f"cannot be opened ({error.strerror})") from error
    if magic != MAGIC:
        raise DataError(where, "not an HDF5 file", got=repr(magic), expected=f"to begin with {MAGIC!r}")
    with Told(where):
        file = h5py.File(path, "r")
        ledger = Ledger(h5py, file, path.stat().st_size, where)
        return Hdf5Group(h5py.h5g.open(file.id, b"/"), where, ledger, 0)


@final
class Hdf5Group:
    """A group whose members are looked at before they are opened."""

    def __init__(self, ident: Any, where: str, ledger: Ledger, depth: int) -> None:
        self._ident = ident
        self._ledger = ledger
        self._depth = depth
        self.where = where

    @property
    def limit(self) -> int:
        """How many bytes whatever is decoded from this file may have."""
        return unfold_limit(self._ledger.size)

    def close(self) -> None:
        """Close the whole file."""
        self._ledger.file.close()

    def names(self) -> list[str]:
        """Members in the file's order; a link that leads elsewhere is refused."""
        with Told(self.where):
            self._ledger.count_links(self._ident.get_num_objs())
            names = [name.decode() for name in self._ident]
            for name in names:
                self._check_link(name)
        return names

    def __contains__(self, name: str) -> bool:
        with Told(self.where):
            return bool(self._ident.links.exists(_member(name, self.where)))

    def is_group(self, name: str) -> bool:
        return bool(self._kind(name) == self._ledger.h5py.h5o.TYPE_GROUP)

    def is_column(self, name: str) -> bool:
        return bool(self._kind(name) == self._ledger.h5py.h5o.TYPE_DATASET)

    def group(self, name: str) -> "Hdf5Group":
        where = f"{self.where}, '{name}'"
        if not self.is_group(name):
            raise DataError(where, "not a group")
        if self._depth >= DEPTH_LIMIT:
            raise DataError(where, "groups are nested too deep", expected=f"at most {DEPTH_LIMIT} levels")
        with Told(where):
            ident = self._ledger.h5py.h5g.open(self._ident, _member(name, where))
        return Hdf5Group(ident, where, self._ledger, self._depth + 1)

    def column(self, name: str) -> "Hdf5Column":
        """A checked dataset of numbers."""
        return Hdf5Column(self._dataset(name), f"{self.where}, '{name}'", self._ledger)

    def byte_rows(self, name: str) -> "Hdf5ByteRows":
        """A checked dataset of byte strings of any length, such as encoded images."""
        return Hdf5ByteRows(self._dataset(name), f"{self.where}, '{name}'", self._ledger)

    def is_byte_rows(self, name: str) -> bool:
        """Whether rows are of variable length; such a dataset has no numbers to read."""
        dataset = self._dataset(name)
        with Told(f"{self.where}, '{name}'"):
            return bool(dataset.get_type().get_class() == self._ledger.h5py.h5t.VLEN)

    def words(self, name: str) -> list[str]:
        """A checked list of short texts of one length, such as names of other members."""
        dataset, h5t, where = self._dataset(name), self._ledger.h5py.h5t, f"{self.where}, '{name}'"
        return read_words(dataset, where, self._ledger) if dataset.get_type().get_class() == h5t.STRING else []

    def columns(self) -> dict[str, "Hdf5Column"]:
        """Every dataset below here by its path, all of them checked."""
        found: dict[str, Hdf5Column] = {}
        for name in self.names():
            if self.is_group(name):
                found |= {f"{name}/{path}": column for path, column in self.group(name).columns().items()}
            else:
                found[name] = self.column(name)
        return found

    def _dataset(self, name: str) -> Any:
        where = f"{self.where}, '{name}'"
        if not self.is_column(name):
            raise DataError(where, "not a dataset")
        h5py = self._ledger.h5py
        with Told(where):
            access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
            access.set_chunk_cache(521, CHUNK_CACHE, 1.0)
            return h5py.h5d.open(self._ident, _member(name, where), access)

    def _kind(self, name: str) -> int:
        if name not in self:
            raise DataError(self.where, f"has no '{name}'", do=did_you_mean(name, self.names()))
        with Told(f"{self.where}, '{name}'"):
            self._check_link(name)
            return int(self._ledger.h5py.h5o.get_info(self._ident, _member(name, self.where)).type)

    def _check_link(self, name: str) -> None:
        h5l = self._ledger.h5py.h5l
        kind = self._ident.links.get_info(_member(name, self.where)).type
        if kind != h5l.TYPE_HARD:
            story = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "a link to another file"}
            raise DataError(
                f"{self.where}, '{name}'",
                "refused",
                got=story.get(kind, "a link of unknown kind"),
                expected="data inside this file",
                do="Copy the data into the file (h5repack, or h5py's Group.copy with expand_external).",
            )


def _member(name: str, where: str) -> bytes:
    """A name that names one member of one group; a path would be resolved through links nobody looked at."""
    if not name or name == "." or "/" in name or "\0" in name:
        raise DataError(where, "has a member whose name is a path", got=repr(name))
    return name.encode()


def _h5py(where: str) -> Any:
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(where, "reading HDF5 needs h5py", do="Run: pip install h5py") from error
    return h5py
