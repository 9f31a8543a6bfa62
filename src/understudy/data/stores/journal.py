"""What a recorder leaves while it works: growing columns, a card that describes them, a journal of whole episodes.

Columns are written first and the journal's line after them, with a checksum. So the longest run of lines whose
episodes check out is exactly what was recorded, whatever stopped the recorder.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import read_sealed, seal, write_bytes
from understudy.core.spec import AXES, LARGEST, Spec
from understudy.data.assemble import slots
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode
from understudy.data.index import EpisodeIndex
from understudy.data.stores.npy import PIECE, npy_header
from understudy.data.stores.store import (
    DTYPES,
    INDEX,
    MANIFEST,
    check_columns,
    check_layout,
    dataset_of,
    recorded_env,
)

JOURNAL = "episodes.jsonl"
CARD = "recording.json"
LINE_LIMIT = 200
"""Bytes of a journal's line; ours are far shorter."""


@final
@dataclass(frozen=True)
class Entry:
    """A whole episode: its shape and the checksum of its rows in all columns."""

    length: int
    terminated: bool
    truncated: bool
    final_known: bool
    checksum: int

    def line(self) -> bytes:
        content = [self.length, self.terminated, self.truncated, self.final_known, self.checksum]
        return (json.dumps(content) + "\n").encode()


@final
@dataclass(frozen=True)
class StoreLayout:
    """The columns of a recording: dtype and shape of a row of each."""

    spec: Spec
    rows: Mapping[str, tuple[str, tuple[int, ...]]]

    @classmethod
    def of(cls, episode: Episode, spec: Spec) -> "StoreLayout":
        return cls(spec, {name: (array.dtype.name, array.shape[1:]) for name, array in columns_of(episode).items()})

    def header(self, name: str, rows: int = 0) -> bytes:
        dtype, row = self.rows[name]
        return npy_header(np.dtype(dtype), (rows, *row))

    def row_bytes(self, name: str) -> int:
        dtype, row = self.rows[name]
        return np.dtype(dtype).itemsize * prod(row)

    def count(self, name: str, entries: Sequence[Entry]) -> int:
        """Rows of a column after these episodes: a row per step, or per observation slot."""
        per_slot = name == "mask" or name.startswith("observation.")
        return sum(entry.length + per_slot for entry in entries)


def columns_of(episode: Episode) -> dict[str, Array]:
    """An episode's rows of every stored column, sorted by name as a sealed card is."""
    known = episode.final_known
    columns = {f"observation.{name}": slots(values, known) for name, values in episode.observations.items()}
    columns |= {f"extra.{name}": values for name, values in episode.extra.items()}
    columns |= {"action": episode.actions, "reward": episode.rewards}
    if episode.mask is not None:
        columns["mask"] = slots(episode.mask, known)
    return dict(sorted(columns.items()))


def write_journal_card(path: Path, layout: StoreLayout, facts: Mapping[str, Any]) -> None:
    content = {"kind": "understudy recording", "spec": layout.spec.to_json(), "rows": layout.rows, "facts": facts}
    write_bytes(path / CARD, seal(json.loads(json.dumps(content))))


def read_journal_card(path: Path) -> tuple[StoreLayout, dict[str, Any]]:
    """What `write_journal_card` wrote. Its names become files that are cut and written: nothing in it is believed."""
    where = f"recording '{path}'"
    try:
        card = read_sealed(path / CARD)
        rows = {str(name): (str(dtype), tuple(map(int, row))) for name, (dtype, row) in card["rows"].items()}
        layout, facts = StoreLayout(Spec.from_json(where, card["spec"]), rows), dict(card["facts"])
    except (UnderstudyError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(where, f"not readable ({error})") from error
    check_columns(layout.spec, {*rows, *INDEX}, where)
    for name, (dtype, row) in rows.items():
        countable = all(0 <= length <= LARGEST for length in row)
        if name in INDEX or dtype not in DTYPES or len(row) >= AXES or not countable:
            raise DataError(f"{where}, column '{name}'", "not a row of numbers", got=f"{dtype} {row}"[:100])
    return layout, facts


def is_unfinished(path: Path) -> bool:
    """A recorder was here and did not finish."""
    return (path / CARD).is_file() and not (path / MANIFEST).exists()


def whole_episodes(path: Path, layout: StoreLayout) -> tuple[list[Entry], int]:
    """The journal's entries up to the first whose rows are not all there, and how many entries follow them."""
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for name in layout.rows:
            if (path / f"{name}.npy").is_file():
                files[name] = stack.enter_context((path / f"{name}.npy").open("rb"))
                files[name].seek(len(layout.header(name)))
        entries: list[Entry] = []
        lines = _entries(path / JOURNAL)
        for entry in lines:
            if len(files) < len(layout.rows) or _checksum(files, layout, entry) != entry.checksum:
                return entries, 1 + sum(1 for _ in lines)
            entries.append(entry)
        return entries, 0


def _checksum(files: Mapping[str, BinaryIO], layout: StoreLayout, entry: Entry) -> int | None:
    """Of the next rows of every file, read piece by piece; a journal may tell of more rows than there are."""
    checksum = 0
    for name, file in files.items():
        left = layout.row_bytes(name) * layout.count(name, [entry])
        while left and (piece := file.read(min(left, PIECE))):
            checksum, left = zlib.crc32(piece, checksum), left - len(piece)
        if left:
            return None
    return checksum


def _entries(journal: Path) -> Iterator[Entry]:
    if not journal.is_file():
        return
    with journal.open("rb") as lines:
        while line := lines.readline(LINE_LIMIT):
            try:
                length, terminated, truncated, final_known, checksum = json.loads(line)
                entry = Entry(int(length), bool(terminated), bool(truncated), bool(final_known), int(checksum))
            except (ValueError, TypeError, OverflowError, RecursionError):
                return
            if line != entry.line() or entry.length < 1:
                return
            yield entry


def open_unfinished(path: Path) -> Dataset:
    """The finished episodes of an unfinished recording."""
    layout, facts = read_journal_card(path)
    entries, _ = whole_episodes(path, layout)
    if not entries:
        raise DataError(f"recording '{path}'", "was stopped before its first episode was finished")
    return map_episodes(path, layout, entries, recorded_env(facts))


def episode_index(entries: Sequence[Entry]) -> EpisodeIndex:
    return EpisodeIndex(
        np.array([entry.length for entry in entries], np.int64),
        *(np.array([getattr(entry, flag) for entry in entries]) for flag in ("terminated", "truncated", "final_known")),
    )


def map_episodes(path: Path, layout: StoreLayout, entries: Sequence[Entry], env: str = "") -> Dataset:
    """Episodes that are known to be whole, mapped."""
    arrays = {name: _map(path, layout, name, entries) for name in layout.rows}
    index = episode_index(entries)
    check_layout(f"recording '{path}'", layout.spec, arrays, index)
    return dataset_of(layout.spec, arrays, index, str(path), env=env)


def _map(path: Path, layout: StoreLayout, name: str, entries: Sequence[Entry]) -> Array:
    dtype, row = layout.rows[name]
    offset, shape = len(layout.header(name)), (layout.count(name, entries), *row)
    if 0 in shape:
        return np.empty(shape, np.dtype(dtype))
    return np.memmap(path / f"{name}.npy", np.dtype(dtype), mode="c", offset=offset, shape=shape)
