"""Large state: the newest million rows of a stream, kept so that nobody ever copies them.

Rows are appended to a ring of memory, or of a file that is mapped into it, and read from there by slot. Rows that
follow one another make a block; a block that is full is written to a segment, once (core.segments). So a capture is a
list of segments, a checkpoint writes what no segment holds yet, and going back reads only what was overwritten since.
What changes in place, such as priorities, is ordinary state beside it.
"""

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from understudy.core.errors import CheckpointError, ConfigError
from understudy.core.files import sha256_bytes
from understudy.core.machine_memory import machine_memory, told_bytes
from understudy.core.segments import Rows, Segment, SegmentFolder, encode

SEGMENT_BYTES = 4 << 20
"""Of a segment: at most so much does a checkpoint write that the one before wrote, too (a block that is not full)."""
MOST_SEGMENTS = 8192
"""Of one state: a checkpoint lists them all."""
MEMORY_SHARE = 4
"""A ring of more than a quarter of the memory there is lies in a file."""
ALIGNMENT = 64


@final
@dataclass(frozen=True)
class StoredRows:
    """What a checkpoint says of a large state."""

    layout: str
    written: int
    segments: tuple[str, ...]
    """The sha256 of each file, oldest rows first."""
    folder: SegmentFolder = field(compare=False)

    def check(self) -> None:
        """An error unless every file is what was written."""
        for sha256 in self.segments:
            self.folder.check(sha256)

    def keep(self, folder: Path) -> "StoredRows":
        """The same, with every file in `folder`."""
        target = SegmentFolder(folder)
        for sha256 in self.segments if folder != self.folder.path else ():
            target.write_content(self.folder.read_content(sha256, machine_memory()))
        return StoredRows(self.layout, self.written, self.segments, target)


@final
@dataclass(frozen=True, eq=False)
class CapturedRows:
    """A large state as it was at one moment: nothing is copied, and nothing of it is lost while this is held."""

    owner: "LargeState"
    written: int
    segments: tuple[Segment, ...]

    @property
    def layout(self) -> str:
        return self.owner.layout

    def __eq__(self, other: object) -> bool:
        """The same rows, to the bit."""
        return isinstance(other, CapturedRows) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((self.layout, self.written))

    def _facts(self) -> tuple[object, ...]:
        digests = [
            segment.sha256 if segment.count == count else sha256_bytes(encode(self.rows(first, first + count)))
            for segment, first, count in self._parts()
        ]
        return self.layout, self.written, digests

    def _parts(self) -> Iterator[tuple[Segment, int, int]]:
        """Each segment with its first row and how many it had then."""
        length = self.owner.segment_rows
        for block, segment in zip(self.owner.blocks(self.written), self.segments, strict=True):
            yield segment, block * length, min(length, self.written - block * length)

    def rows(self, first: int, last: int) -> Rows:
        """Rows of one block; those that are in no file yet are in the owner's memory still."""
        start = self.owner.blocks(self.written).start
        block = first // self.owner.segment_rows
        segment, offset = self.segments[block - start], block * self.owner.segment_rows
        if segment.folder is None:
            return self.owner.between(first, last)
        rows = segment.folder.read(segment.sha256, self.owner.row, segment.count)
        return {name: column[first - offset : last - offset] for name, column in rows.items()}

    def keep(self, folder: Path) -> StoredRows:
        """Write what no file in `folder` holds yet; a block that is not full gets a file for the time being."""
        target = self.owner.folder
        if target is None or target.path != folder:
            target = SegmentFolder(folder)
        names = []
        for segment, first, count in self._parts():
            held = segment if segment.count == count else segment.draft
            if held is None or held.folder is None or held.count != count:
                held = Segment.written(target, target.write(self.rows(first, first + count)), count)
                if segment.folder is None:
                    segment.draft = held
            elif held.folder.path != folder:
                target.write(self.rows(first, first + count))
                held.place(target, held.sha256, count)
            names.append(held.sha256)
        return StoredRows(self.layout, self.written, tuple(names), target)

    def name(self, folder: Path, sha256: set[str]) -> None:
        """Hear what the kept checkpoints name in `folder`: from now on the rest goes as soon as nobody holds it."""
        if self.owner.folder is not None and self.owner.folder.path == folder:
            self.owner.folder.named = sha256


@final
class LargeState:
    """The newest `capacity` of all rows ever appended; row number r lies in slot r mod capacity."""

    def __init__(self, row: Mapping[str, Tensor], capacity: int, *, segment_rows: int = 0, memory: int = 0) -> None:
        """For rows like `row`. `memory`: bytes above which the ring lies in a file. Where something is 0, we choose."""
        if capacity < 1:
            raise ConfigError("capacity", "there is no room for a row", got=capacity, expected="at least 1")
        self.row: Rows = {name: torch.empty(row[name].shape, dtype=row[name].dtype) for name in sorted(row)}
        self.row_bytes = sum(tensor.nbytes for tensor in self.row.values())
        self.capacity = capacity
        few = max(SEGMENT_BYTES // max(self.row_bytes, 1), -(-capacity // MOST_SEGMENTS), 1)
        self.segment_rows = min(segment_rows or few, capacity)
        self.memory = memory or machine_memory() // MEMORY_SHARE
        self.written = 0
        """Rows ever appended."""
        self.folder: SegmentFolder | None = None
        """Where new segments go; a temporary folder where nobody says."""
        self._segments: dict[int, Segment] = {}
        """By the number of their block, that of the open block included."""

    def __len__(self) -> int:
        """Rows that are there."""
        return min(self.written, self.capacity)

    @property
    def layout(self) -> str:
        told = ", ".join(f"{name} {tensor.dtype} {list(tensor.shape)}" for name, tensor in self.row.items())
        return f"{self.capacity:,} rows in segments of {self.segment_rows:,} ({told})"

    @property
    def mapped(self) -> bool:
        """The ring lies in a file."""
        return self.capacity * self.row_bytes > self.memory

    @property
    def disk_bytes(self) -> int:
        """What it takes of the disk when it is full: its segments, and the ring if that lies there, too."""
        return self.capacity * self.row_bytes * (2 if self.mapped else 1)

    @cached_property
    def columns(self) -> Rows:
        """Each column by slot, [capacity, …]: to be read only."""
        if self.mapped:
            return self._mapped()
        return {
            name: torch.empty((self.capacity, *like.shape), dtype=like.dtype, device="cpu")
            for name, like in self.row.items()
        }

    def _mapped(self) -> Rows:
        """Columns in a file without a name, which goes with the process; its room on the disk is taken at once."""
        sizes = {name: self.capacity * like.nbytes for name, like in self.row.items()}
        total = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes.values())
        if self.folder is not None:
            self.folder.create()
        try:
            with tempfile.TemporaryFile(dir=None if self.folder is None else self.folder.path) as file:
                if sys.platform == "linux":
                    os.posix_fallocate(file.fileno(), 0, total)
                else:
                    os.ftruncate(file.fileno(), total)
                memory = mmap.mmap(file.fileno(), total)
        except OSError as error:
            what = f"there is no room on the disk for {told_bytes(total)} of rows ({error.strerror})"
            raise ConfigError("capacity", what, got=self.capacity, do="Lower it, or make room.") from error
        columns: Rows = {}
        offset = 0
        for name, like in self.row.items():
            count = self.capacity * like.numel()
            flat = torch.frombuffer(memory, dtype=like.dtype, count=count, offset=offset)
            columns[name] = flat.view(self.capacity, *like.shape)
            offset += -(-sizes[name] // ALIGNMENT) * ALIGNMENT
        return columns

    def gather(self, slots: Tensor) -> Rows:
        """Copies of the rows in these slots [B]."""
        return {name: column.index_select(0, slots) for name, column in self.columns.items()}

    def room(self, count: int) -> slice:
        """The slots of the next `count` rows, for whoever writes them in place and then says `commit`.

        Neither the ring's end nor a block's lies between them: so it is where capacity and segments are multiples of
        `count`, and nothing else is ever appended.
        """
        if self.written % self.segment_rows == 0:
            self._segments[self.written // self.segment_rows] = Segment()
        start = self.written % self.capacity
        return slice(start, start + count)

    def commit(self, count: int) -> None:
        """The rows of `room` are there."""
        self.written += count
        if self.written % self.segment_rows == 0:
            self._close(self.written // self.segment_rows - 1)

    def append(self, rows: Mapping[str, Tensor]) -> None:
        """Add rows [B, …] behind the newest, in place of the oldest where there is no more room."""
        count, done = self._count(rows), 0
        while done < count:
            block, inside = divmod(self.written, self.segment_rows)
            if inside == 0:
                self._segments[block] = Segment()
            size = min(count - done, self.segment_rows - inside)
            self._put(self.written, {name: rows[name][done : done + size] for name in self.row})
            self.written += size
            done += size
            if inside + size == self.segment_rows:
                self._close(block)

    def _count(self, rows: Mapping[str, Tensor]) -> int:
        count = len(next(iter(rows.values()), ()))
        told = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in rows.items()}
        if told != (due := {name: (like.dtype, (count, *like.shape)) for name, like in self.row.items()}):
            raise TypeError(f"rows of another kind: got {told}, expected {due}")
        return count

    def _close(self, block: int) -> None:
        """Write a block that is full, and let go of those that are overwritten."""
        self._write(block, self.written)
        oldest = self.blocks(self.written).start
        for number in [number for number in self._segments if number < oldest]:
            del self._segments[number]
        if self.folder is not None:
            self.folder.collect()

    def _write(self, block: int, last: int) -> None:
        """Put a block's rows up to `last` into its segment; from then on memory is not asked for them."""
        if self.folder is None:
            self.folder = SegmentFolder.temporary()
        first = block * self.segment_rows
        try:
            self._segments[block].place(self.folder, self.folder.write(self.between(first, last)), last - first)
        except OSError as error:
            raise CheckpointError(
                f"rows in '{self.folder.path}'",
                f"could not be written ({error})",
                do="Checkpoints are untouched: make room or fix permissions, then resume.",
            ) from error

    def blocks(self, written: int) -> range:
        """The numbers of the blocks that hold the rows which are there after so many were written."""
        return range(max(0, written - self.capacity) // self.segment_rows, -(-written // self.segment_rows))

    def between(self, first: int, last: int) -> Rows:
        """Rows by number, out of memory: `first` up to, not including, `last`."""
        return {
            name: torch.cat([column[part] for part in self._slices(first, last)])
            for name, column in self.columns.items()
        }

    def _put(self, first: int, rows: Mapping[str, Tensor]) -> None:
        count = len(next(iter(rows.values())))
        for name, column in self.columns.items():
            start = 0
            for part in self._slices(first, first + count):
                column[part] = rows[name][start : start + part.stop - part.start]
                start += part.stop - part.start

    def _slices(self, first: int, last: int) -> list[slice]:
        """The slots of rows: one piece, or two where the ring ends between them."""
        start = first % self.capacity
        stop = start + last - first
        if stop <= self.capacity:
            return [slice(start, stop)]
        return [slice(start, self.capacity), slice(0, stop - self.capacity)]

    def capture(self) -> CapturedRows:
        return CapturedRows(self, self.written, tuple(self._segments[block] for block in self.blocks(self.written)))

    def refusal(self, rows: CapturedRows | StoredRows) -> str:
        """Why rows of the same layout cannot be restored; empty if they can. Files are read, and nothing changes."""
        if isinstance(rows, CapturedRows):
            return ""
        if rows.written < 0 or len(rows.segments) != len(self.blocks(rows.written)):
            return f"lists {len(rows.segments)} segments after {rows.written:,} rows"
        try:
            for block, sha256 in zip(self.blocks(rows.written), rows.segments, strict=True):
                rows.folder.read(sha256, self.row, self._length(block, rows.written))
        except CheckpointError as error:
            return f"cannot be restored ({str(error).rstrip('.')})"
        return ""

    def restore(self, rows: CapturedRows | StoredRows) -> None:
        """Be as at another moment, of this state's own past perhaps: then only what was overwritten since is read."""
        if isinstance(rows, StoredRows):
            rows = self._opened(rows)
        open_block, inside = divmod(self.written, self.segment_rows)
        wanted = dict(zip(self.blocks(rows.written), rows.segments, strict=True))
        still = inside > 0 and rows.written == self.written and wanted[open_block] is self._segments[open_block]
        if inside > 0 and not still:  # somebody may hold these rows, and others will be written over them
            self._write(open_block, self.written)
        for block, segment in wanted.items():
            first = max(block * self.segment_rows, rows.written - self.capacity)
            last = block * self.segment_rows + self._length(block, rows.written)
            if self._segments.get(block) is segment:
                last = min(last, self.written - self.capacity)
            if first < last:
                self._put(first, rows.rows(first, last))
        self.written, self._segments = rows.written, wanted
        if rows.written % self.segment_rows and not still:
            self._segments[rows.written // self.segment_rows] = Segment()

    def _opened(self, rows: StoredRows) -> CapturedRows:
        """The same, held by this state."""
        segments = tuple(
            Segment.written(rows.folder, sha256, self._length(block, rows.written))
            for block, sha256 in zip(self.blocks(rows.written), rows.segments, strict=True)
        )
        return CapturedRows(self, rows.written, segments)

    def _length(self, block: int, written: int) -> int:
        """Rows of a block after so many were written."""
        return min(self.segment_rows, written - block * self.segment_rows)
