"""Files of NumPy arrays (.npz) as recordings: flat rows, stable-baselines 2, `imitation` and packed layouts.

A member's header is read and believed only as far as the archive bears it out; the numbers of a member are read when
somebody needs them, and members that nobody needs are never read. No pickle is ever opened.
"""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.lib import format as npy_format

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace, space_from
from understudy.data.episode import Array
from understudy.data.formats.column_map import ColumnMap, mapped
from understudy.data.formats.columns import NAMES, FileColumn
from understudy.data.formats.flat import flat_recording
from understudy.data.formats.imitation import imitation_recording, is_imitation
from understudy.data.formats.packed import ABOUT, is_packed, packed_recording
from understudy.data.recording import Recording, environment_name, open_at_once
from understudy.data.stores.npy import read_array, read_header

MEMORY_BUDGET = 16 << 30
SMALL = 64 << 20
KEPT = 16 << 20
"""An array this large is kept in memory once it was read; a larger one is read by blocks."""
SKIPPED = 4 << 20
PIECE = 1 << 20
MEMBERS = 10_000
"""Arrays of one file; a recording has a dozen, an archive made to exhaust memory has a million."""
DIRECTORY_BYTES = 2 << 20
EXPANSION_LIMIT = 100
"""Beyond `SMALL`, a file that unpacks to more than this many times its own size is a bomb, not a recording."""
ABOUT_BYTES = 1 << 20
UNREADABLE = (
    *(ValueError, OSError, EOFError, NotImplementedError, RuntimeError, OverflowError, MemoryError, TypeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What zipfile and NumPy raise on damaged files."""


def open_npz(
    path: Path, *, episode_steps: int | None = None, columns: ColumnMap = "", one_episode: bool = False
) -> Recording:
    """The recording in an .npz file; its arrays are read as they are needed.

    `episode_steps` is the transform of that name, which flat files without any end need to be read at all, unless the
    file is `one_episode`. `columns` tells which array is what.
    """
    where = f"dataset '{path}'"
    members = npz_members(path, where)
    facts = _about(members, where)
    if facts is not None and is_packed(facts):
        if columns:
            raise DataError(where, "its columns have names already", do="Leave columns out.")
        return packed_recording({name: member for name, member in members.items() if name != ABOUT}, facts, path.name)
    space = None if facts is None else _space(facts, where)
    env = "" if facts is None else environment_name(facts.get("env"))
    arrays: dict[str, FileColumn] = {name: member for name, member in members.items() if name != ABOUT}
    notes: tuple[str, ...] = ()
    if columns:
        arrays, notes = mapped(arrays, columns, where)
    _refuse_strangers(arrays, where)
    if is_imitation(arrays):
        return imitation_recording(arrays, path.name, where)
    return flat_recording(
        arrays,
        path.name,
        where,
        space=space,
        env=env,
        notes=notes,
        episode_steps=episode_steps,
        one_episode=one_episode,
    )


def read_observation_arrays(path: Path) -> Array | dict[str, Array]:
    """Observations for a policy: an .npy file's array, or an .npz file's arrays by group (`observations/<group>`)."""
    where = f"observations '{path}'"
    if not path.is_file():
        return read_array(path)  # which tells why not
    with open(path, "rb", opener=open_at_once) as file:
        if file.read(2) != b"PK":
            return read_array(path)
    members = npz_members(path, where)
    return {name.removeprefix("observations/"): member.values for name, member in members.items()}


@final
class Member:
    """One array of an archive: its shape and dtype from the header, its numbers from the file when asked for.

    A small one is kept. Of a large one only the rows that are asked for are read, in the order they stand in: who goes
    through it from front to back, as readers do, unpacks it once and never holds it all.
    """

    def __init__(
        self,
        path: Path,
        info: zipfile.ZipInfo,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        where: str,
        *,
        by_rows: bool = True,
    ) -> None:
        self._path = path
        self._where = where
        self._info = info
        self.shape = shape
        self.dtype = dtype
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._streamed = by_rows and len(shape) > 0 and shape[0] * self._row_bytes > KEPT and self._row_bytes > 0
        self._open: tuple[zipfile.ZipFile, IO[bytes]] | None = None
        self._place = 0
        """Rows that were read of what is open."""
        self._block: tuple[int, Array] = (0, np.empty((0, *shape[1:]), dtype))
        """The last rows that were read, and the number of the first of them."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice, /) -> Array:
        if not self._streamed:
            return self.values[rows]
        start, stop, step = rows.indices(len(self))
        if step != 1:
            return self.values[rows]
        first, block = self._block
        if not first <= start <= first + len(block) == self._place:
            self._seek(start)
            first, block = start, block[:0]
        with _readable(self._where):
            more = self._read(max(0, stop - self._place))
        part = block[start - first : stop - first]
        self._block = start, np.concatenate([part, more]) if len(part) else more
        return self._block[1]

    def _seek(self, row: int) -> None:
        """Stand before a row; what lies before it is unpacked and thrown away."""
        with _readable(self._where):
            if self._open is None or row < self._place:
                self._close()
                archive = zipfile.ZipFile(self._path)
                file = archive.open(self._info)
                read_header(file)
                self._open, self._place = (archive, file), 0
            while self._place < row:
                self._read(min(row - self._place, max(1, SKIPPED // self._row_bytes)))

    def _read(self, count: int) -> Array:
        """The next rows [count, …]; after the last one the checksum has been compared."""
        if self._open is None:
            self._seek(self._place)
        assert self._open is not None
        rows = np.empty(count * self._row_bytes, np.uint8)
        for place in range(0, len(rows), PIECE):
            data = self._open[1].read(min(PIECE, len(rows) - place))
            if len(data) < min(PIECE, len(rows) - place):
                raise EOFError("it ends too soon")
            rows[place : place + PIECE] = np.frombuffer(data, np.uint8)
        self._place += count
        return rows.view(self.dtype).reshape(count, *self.shape[1:])

    def _close(self) -> None:
        for opened in reversed(self._open or ()):
            opened.close()
        self._open = None

    @cached_property
    def values(self) -> Array:
        """The whole array; the checksum of the member whose header was read must still fit."""
        with (
            _readable(self._where),
            zipfile.ZipFile(self._path) as archive,
            archive.open(self._info) as file,
        ):
            return np.asarray(npy_format.read_array(file, allow_pickle=False))


class _Bounded(io.FileIO):
    """A file whose directory of members, which zipfile reads at once, is small enough to be one of arrays."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > DIRECTORY_BYTES:
            raise ValueError(f"it lists more than {MEMBERS:,} arrays")
        return super().read(size)


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Whatever a damaged archive raises, in our words."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(where, "no such file") from error
    except UNREADABLE as error:
        raise DataError(where, f"not a readable npz file ({error})") from error


def npz_members(path: Path, where: str) -> dict[str, Member]:
    """Every array by name, headers checked."""
    with _readable(where), _Bounded(path, opener=open_at_once) as file, zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        if len(infos) > MEMBERS:
            raise DataError(where, "refused: too many arrays", got=f"{len(infos):,}", expected=f"at most {MEMBERS:,}")
        _check_unpacked_size(sum(info.file_size for info in infos), path.stat().st_size, where)
        members = {}
        for info in infos:
            name = _member_name(info, where)
            if name in members:
                raise DataError(where, f"holds two arrays named '{name}'")
            with archive.open(info) as member:
                shape, by_rows, dtype = _read_header(member, info, where)
                members[name] = Member(path, info, shape, dtype, where, by_rows=by_rows)
    return members


def _member_name(info: zipfile.ZipInfo, where: str) -> str:
    """The array's name; names are never used as paths, but one that climbs out of a folder is not honest."""
    name = info.filename
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise DataError(where, "refused: a member's name leads out of the file", got=repr(name[:60]))
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise DataError(where, "refused: packed in a way that NumPy does not write", got=repr(name[:60]))
    return name.removesuffix(".npy")


def _check_unpacked_size(unpacked: int, packed: int, where: str) -> None:
    if unpacked > MEMORY_BUDGET:
        raise DataError(where, "too large to read into memory", got=f"{unpacked:,} bytes")
    if unpacked > SMALL and unpacked > EXPANSION_LIMIT * packed:
        raise DataError(where, "refused as a zip bomb", got=f"{packed:,} bytes that unpack to {unpacked:,}")


def _read_header(file: IO[bytes], info: zipfile.ZipInfo, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it lies row by row, and dtype.

    They must promise just what the archive holds, and nothing but plain values.
    """
    shape, by_columns, dtype = read_header(file)
    place = f"{where}, array '{info.filename[:100]}'"
    if dtype.hasobject:
        raise DataError(
            place,
            "refused",
            got=f"{dtype} {shape}",
            expected="plain numbers",
            do="Objects are stored as pickles, which can run code. Save the file again without this array.",
        )
    honest = all(type(length) is int and 0 <= length <= info.file_size for length in shape)
    promised = file.tell() + int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
    if not honest or promised != info.file_size:  # read to its end, a member is compared with its checksum
        raise DataError(place, "refused", got=f"{dtype} {shape}", expected=f"what {info.file_size:,} bytes hold")
    return shape, not by_columns, dtype


def _about(members: Mapping[str, Member], where: str) -> dict[str, Any] | None:
    """What a file of ours says of itself; None if it is another's."""
    member = members.get(ABOUT)
    if member is None or member.shape != () or member.dtype.kind != "U" or member.dtype.itemsize > ABOUT_BYTES:
        return None
    try:
        facts = json.loads(str(member.values))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}, {ABOUT}", "not readable", got=repr(error)[:200]) from error
    if not isinstance(facts, dict):
        raise DataError(f"{where}, {ABOUT}", "not readable", got=f"{facts!r:.200}", expected="facts by name")
    return facts


def _space(facts: Mapping[str, Any], where: str) -> ActionSpace:
    """The action space that a file of ours says."""
    try:
        return space_from(facts["action"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"{where}, {ABOUT}", "its action space is not readable", got=repr(error)[:200]) from error


def _refuse_strangers(columns: Mapping[str, FileColumn], where: str) -> None:
    """Files that are something else are told what they seem to be."""
    known = (*NAMES["observations"], *NAMES["actions"])
    if any(name.split("/")[0].split(".")[0] in known for name in columns):
        return
    guess, do = "holds no recording that we know", ""
    if any(name.endswith((".weight", "/weight", "_weight", "/W", ".W")) for name in columns):
        guess = "holds the weights of a network, not a recording"
    elif any(name.startswith(("dof_", "body_", "joint_")) for name in columns):
        guess, do = "holds a reference motion, not a recording", "Look at it with understudy motion inspect."
    raise DataError(
        where,
        guess,
        got=", ".join(repr(name[:40]) for name in list(columns)[:6]) or "no arrays",
        expected="observations and actions",
        do=do,
    )
