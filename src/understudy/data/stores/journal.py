"""What a recorder leaves while it works: growing columns, a card that describes them, a journal of whole episodes.

Columns are written first and the journal's line after them, with a checksum. So the longest run of lines whose
episodes check out is exactly what was recorded, whatever stopped the recorder.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import read_sealed, seal, write_bytes
from understudy.core.spec import Spec
from understudy.data.assemble import slots
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode
from understudy.data.index import EpisodeIndex
from understudy.data.stores.npy import npy_header
from understudy.data.stores.store import MANIFEST

JOURNAL = "episodes.jsonl"
CARD = "recording.json"


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
class Layout:
    """The columns of a recording: dtype and shape of a row of each."""

    spec: Spec
    rows: Mapping[str, tuple[str, tuple[int, ...]]]

    @classmethod
    def of(cls, episode: Episode, spec: Spec) -> "Layout":
        return cls(spec, {name: (array.dtype.name, array.shape[1:]) for name, array in columns_of(episode).items()})

    def header(self, name: str, rows: int = 0) -> bytes:
        dtype, row = self.rows[name]
        return npy_header(np.dtype(dtype), (rows, *row))

    def row_bytes(self, name: str) -> int:
        dtype, row = self.rows[name]
        return int(np.dtype(dtype).itemsize * np.prod(row, dtype=np.int64))

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


def write_card(path: Path, layout: Layout, facts: Mapping[str, Any]) -> None:
    content = {"kind": "understudy recording", "spec": layout.spec.to_json(), "rows": layout.rows, "facts": facts}
    write_bytes(path / CARD, seal(json.loads(json.dumps(content))))


def read_card(path: Path) -> tuple[Layout, dict[str, Any]]:
    where = f"recording '{path}'"
    try:
        card = read_sealed(path / CARD)
        rows = {str(name): (np.dtype(dtype).name, tuple(map(int, row))) for name, (dtype, row) in card["rows"].items()}
        return Layout(Spec.from_json(where, card["spec"]), rows), dict(card["facts"])
    except (UnderstudyError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(where, f"not readable ({error})") from error


def is_unfinished(path: Path) -> bool:
    """A recorder was here and did not finish."""
    return (path / CARD).is_file() and not (path / MANIFEST).exists()


def whole_episodes(path: Path, layout: Layout) -> list[Entry]:
    """The journal's entries up to the first that is torn or whose rows are not all there."""
    files = {name: (path / f"{name}.npy").open("rb") for name in layout.rows if (path / f"{name}.npy").is_file()}
    try:
        if len(files) < len(layout.rows):
            return []
        for name, file in files.items():
            file.seek(len(layout.header(name)))
        entries = []
        for entry in _entries(path / JOURNAL):
            checksum = 0
            for name, file in files.items():
                checksum = zlib.crc32(file.read(layout.row_bytes(name) * layout.count(name, [entry])), checksum)
            if checksum != entry.checksum:
                break
            entries.append(entry)
        return entries
    finally:
        for file in files.values():
            file.close()


def _entries(journal: Path) -> Iterator[Entry]:
    if not journal.is_file():
        return
    with journal.open("rb") as lines:
        for line in lines:
            try:
                length, terminated, truncated, final_known, checksum = json.loads(line)
                entry = Entry(int(length), bool(terminated), bool(truncated), bool(final_known), int(checksum))
            except (ValueError, TypeError, RecursionError):
                return
            if line != entry.line() or entry.length < 1:
                return
            yield entry


def open_unfinished(path: Path) -> Dataset:
    """The finished episodes of an unfinished recording."""
    layout, _ = read_card(path)
    entries = whole_episodes(path, layout)
    if not entries:
        raise DataError(f"recording '{path}'", "was stopped before its first episode was finished")
    columns = {name: torch.from_numpy(_map(path, layout, name, entries)) for name in layout.rows}
    index = EpisodeIndex(
        np.array([entry.length for entry in entries], np.int64),
        *(np.array([getattr(entry, flag) for entry in entries]) for flag in ("terminated", "truncated", "final_known")),
    )
    return Dataset(
        layout.spec,
        {group: columns[f"observation.{group}"] for group in layout.spec.observation},
        columns["action"],
        columns["reward"],
        index,
        name=str(path),
        mask=columns.get("mask"),
        extra={name.removeprefix("extra."): column for name, column in columns.items() if name.startswith("extra.")},
    )


def _map(path: Path, layout: Layout, name: str, entries: Sequence[Entry]) -> Array:
    dtype, row = layout.rows[name]
    offset, shape = len(layout.header(name)), (layout.count(name, entries), *row)
    return np.memmap(path / f"{name}.npy", np.dtype(dtype), mode="c", offset=offset, shape=shape)
