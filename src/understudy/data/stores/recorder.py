"""A recorder: appends finished episodes to a folder and makes it a store at the end.

A recorder that is killed loses the episode it was in and nothing else; the next one goes on where it stopped.
"""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

import numpy as np

from understudy.core.errors import DataError
from understudy.core.files import publish_directory, sync_directory
from understudy.core.spec import ActionSpace
from understudy.data.assemble import check_actions, check_same, spec_of_episode
from understudy.data.episode import Array, Episode, Precision, check_episode
from understudy.data.fingerprint import ColumnFacts
from understudy.data.index import EpisodeIndex
from understudy.data.recording import Recording
from understudy.data.stores.journal import (
    CARD,
    JOURNAL,
    Entry,
    Layout,
    columns_of,
    is_unfinished,
    open_unfinished,
    read_card,
    whole_episodes,
    write_card,
)
from understudy.data.stores.npy import PIECE, write_column
from understudy.data.stores.store import check_names, write_manifest

SYNC_EPISODES = 64
"""Episodes between fsyncs: what a power cut may cost, besides the one being recorded."""


@final
@dataclass
class _Growing:
    """A column file, open at its end, and the digest of its rows."""

    handle: int
    rows: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def append(self, values: Array) -> memoryview:
        content = np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")
        self.digest.update(content)
        rest = content
        while rest:
            rest = rest[os.write(self.handle, rest) :]
        self.rows += len(values)
        return content

    def finish(self, layout: Layout, name: str) -> ColumnFacts:
        os.pwrite(self.handle, layout.header(name, self.rows), 0)
        os.fsync(self.handle)
        os.close(self.handle)
        dtype, row = layout.rows[name]
        return ColumnFacts(dtype, (self.rows, *row), self.digest.hexdigest())


@final
class Recorder:
    """`with Recorder(path, space) as recorder: recorder.add(episode)`; leaving it without an error makes a store.

    A folder that a killed recorder left is taken up again: `recorder.episodes` says how many it holds already.
    """

    def __init__(
        self,
        path: Path | str,
        space: ActionSpace,
        *,
        recipe: Mapping[str, Any] | None = None,
        precision: Precision = "float32",
    ) -> None:
        self.path = Path(path)
        self.space = space
        self.recipe: dict[str, Any] = json.loads(json.dumps(dict(recipe or {})))
        self.precision: Precision = precision
        self._first: Episode | None = None
        self._layout: Layout | None = None
        self._entries: list[Entry] = []
        self._columns: dict[str, _Growing] = {}
        self._journal = -1
        self.steps = 0
        """Steps of the episodes finished so far."""
        if is_unfinished(self.path):
            self._take_up()
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.glob("[!.]*"))):
            raise DataError(str(self.path), "already exists", do="Choose another name or remove it first.")

    @property
    def episodes(self) -> int:
        """Finished so far."""
        return len(self._entries)

    def add(self, episode: Episode) -> None:
        """Check an episode and make it part of the recording; once this returns, a kill does not lose it."""
        where = f"dataset '{self.path}', episode {self.episodes}"
        episode = check_episode(episode, where, self.space, self.precision)
        check_actions(episode.actions, self.space, where)
        if self._first is None:
            self._start(episode)
        else:
            check_same(episode, self._first, where)
        checksum = 0
        for name, values in columns_of(episode).items():
            checksum = zlib.crc32(self._columns[name].append(values), checksum)
        entry = Entry(len(episode), episode.terminated, episode.truncated, episode.final_known, checksum)
        os.write(self._journal, entry.line())
        self._entries.append(entry)
        self.steps += entry.length
        if self.episodes % SYNC_EPISODES == 0:
            self._sync()

    def _start(self, episode: Episode) -> None:
        """The first episode decides the columns."""
        check_names([*episode.observations, *episode.extra], f"dataset '{self.path}'")
        self._first = episode
        self._layout = Layout.of(episode, spec_of_episode(episode, self.space))
        self.path.mkdir(parents=True, exist_ok=True)
        write_card(self.path, self._layout, self._facts())
        for name in self._layout.rows:
            handle = os.open(self.path / f"{name}.npy", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(handle, self._layout.header(name))
            self._columns[name] = _Growing(handle)
        self._journal = os.open(self.path / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)

    def _facts(self) -> dict[str, Any]:
        return {"recipe": self.recipe, "precision": self.precision}

    def _take_up(self) -> None:
        """Go on with a folder that was left unfinished: cut what is behind its last whole episode."""
        layout, facts = read_card(self.path)
        if facts != self._facts() or layout.spec.action != self.space:
            raise DataError(
                str(self.path),
                "holds an unfinished recording of something else",
                do="Remove it or choose another name.",
            )
        entries = whole_episodes(self.path, layout)
        if not entries:
            return
        for name in layout.rows:
            handle = os.open(self.path / f"{name}.npy", os.O_RDWR)
            rows = layout.count(name, entries)
            self._columns[name] = _Growing(handle, rows)
            _reopen(self._columns[name], len(layout.header(name)), rows * layout.row_bytes(name))
        self._journal = os.open(self.path / JOURNAL, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._journal, sum(len(entry.line()) for entry in entries))
        self._first, self._layout, self._entries = open_unfinished(self.path).episode(0), layout, entries
        self.steps = sum(entry.length for entry in entries)

    def _sync(self) -> None:
        for handle in [*(column.handle for column in self._columns.values()), self._journal]:
            os.fsync(handle)

    def finish(self) -> Path:
        """Make the folder a store."""
        if self._layout is None:
            raise DataError(f"dataset '{self.path}'", "has no episodes")
        facts = {name: column.finish(self._layout, name) for name, column in self._columns.items()}
        index = EpisodeIndex(
            np.array([entry.length for entry in self._entries], np.int64),
            np.array([entry.terminated for entry in self._entries], bool),
            np.array([entry.truncated for entry in self._entries], bool),
            np.array([entry.final_known for entry in self._entries], bool),
        )
        for name, array in index.arrays().items():
            (self.path / f"{name}.npy").unlink(missing_ok=True)
            facts[name] = write_column(self.path / f"{name}.npy", array, [array])
        write_manifest(self.path, self._layout.spec, facts, self.recipe)
        os.close(self._journal)
        for leftover in (JOURNAL, CARD):
            (self.path / leftover).unlink()
        sync_directory(self.path)
        return self.path

    def close(self) -> None:
        """Leave the folder as it is: unfinished, readable, to be taken up again."""
        for handle in [*(column.handle for column in self._columns.values()), self._journal]:
            if handle >= 0:
                os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()


def _reopen(column: _Growing, start: int, size: int) -> None:
    """Cut a column file behind its whole rows, digest them, and stand at the end."""
    os.ftruncate(column.handle, start + size)
    os.lseek(column.handle, start, os.SEEK_SET)
    while piece := os.read(column.handle, PIECE):
        column.digest.update(piece)


def record(
    recording: Recording,
    path: Path | str,
    space: ActionSpace,
    *,
    precision: Precision = "float32",
    recipe: Mapping[str, Any] | None = None,
    on_steps: Callable[[int], None] | None = None,
) -> Path:
    """Stream a recording into a new store at `path`, which appears whole or not at all."""
    path = Path(path)
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with Recorder(draft, space, precision=precision, recipe=recipe) as recorder:
            for episode in recording.episodes():
                recorder.add(episode)
                if on_steps is not None:
                    on_steps(recorder.steps)
        publish_directory(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return path
