"""A recorder: appends finished episodes to a folder and makes it a store at the end.

A recorder that is killed loses the episode it was in and nothing else; the next one goes on where it stopped.
"""

import hashlib
import json
import os
import weakref
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

import numpy as np

from understudy.core.arguments import as_path
from understudy.core.drafts import new_folder
from understudy.core.errors import DataError
from understudy.core.files import sync_directory
from understudy.core.lock import LOCK, lock_folder, release
from understudy.core.spec import ActionSpace, GivenSpace, as_action_space
from understudy.data.assemble import check_action_bounds, check_same, spec_of_episode
from understudy.data.episode import Array, Episode, Precision, check_episode
from understudy.data.fingerprint import ColumnFacts
from understudy.data.recording import Recording
from understudy.data.stores.journal import (
    CARD,
    JOURNAL,
    Entry,
    StoreLayout,
    columns_of,
    episode_index,
    is_unfinished,
    map_episodes,
    read_journal_card,
    whole_episodes,
    write_journal_card,
)
from understudy.data.stores.npy import PIECE, write_column
from understudy.data.stores.store import MANIFEST, check_names, write_manifest

LEFTOVERS = (JOURNAL, LOCK, CARD)
"""What a recorder needs and a store does not."""
SYNC_EPISODES = 64
"""Episodes between fsyncs: what a power cut may cost, besides the one being recorded."""


@final
class Recorder:
    """`with Recorder(path, space) as recorder: recorder.add(episode)`; leaving it without an error makes a store.

    A folder that a killed recorder left is taken up again: `recorder.episodes` says how many it holds already.
    """

    def __init__(
        self,
        path: Path | str,
        space: GivenSpace,
        *,
        recipe: Mapping[str, Any] | None = None,
        precision: Precision = "float32",
        name: str = "",
        env: str = "",
    ) -> None:
        self.path = as_path(path, "recorder")
        self.name = name or str(path)
        """What errors call the episodes that are added: where they come from, if that is another place."""
        self.env = env
        """The environment they come from, to be written down."""
        self.has_rewards = True
        """Whether rewards were recorded; zeros that stand for none are written down as such."""
        self.space = as_action_space(space, f"recording '{path}'")
        self.recipe: dict[str, Any] = json.loads(json.dumps(dict(recipe or {})))
        self.precision: Precision = precision
        self.steps = 0
        """Steps of the episodes finished so far."""
        self._first: Episode | None = None
        self._layout: StoreLayout | None = None
        self._entries: list[Entry] = []
        self._columns: dict[str, Growing] = {}
        self._journal = -1
        self._closed = False
        self._handles: list[int] = []
        """Everything that is open; the lock, which is the first, is the last to be closed."""
        weakref.finalize(self, _close, self._handles)
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    @property
    def episodes(self) -> int:
        """Finished so far."""
        return len(self._entries)

    def add(self, episode: Episode) -> None:
        """Check an episode and make it part of the recording; once this returns, a kill does not lose it."""
        self._check_open()
        where = f"dataset '{self.name}', episode {self.episodes}"
        episode = check_episode(episode, where, self.space, self.precision)
        check_action_bounds(episode.actions, self.space, where)
        if self._first is None:
            check_names([*episode.observations, *episode.extra], f"dataset '{self.path}'")
        else:
            check_same(episode, self._first, where)
        try:
            if self._first is None:
                self._start(episode)
            self._append(episode)
        except BaseException:  # rows without their line: only taking the folder up again cuts them off
            self.close()
            raise

    def finish(self) -> Path:
        """Make the folder a store."""
        self._check_open()
        if self._layout is None:
            raise DataError(f"dataset '{self.path}'", "has no episodes")
        try:
            self._publish(self._layout)
        finally:
            self.close()
        return self.path

    def close(self) -> None:
        """Leave the folder as it is: unfinished, readable, to be taken up again by another recorder."""
        self._closed = True
        _close(self._handles)

    def _look(self) -> None:
        """Take up what a killed recorder left; refuse anything else that lies there."""
        if is_unfinished(self.path):
            self._lock()
        if is_unfinished(self.path):  # still, now that nobody else can finish it
            self._take_up()
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.glob("[!.]*"))):
            _close(self._handles)
            settle(self.path)
            raise DataError(str(self.path), "already exists", do="Choose another name or remove it first.")

    def _lock(self) -> None:
        self._handles.append(_lock(self.path))

    def _check_open(self) -> None:
        if self._closed:
            raise DataError(
                f"dataset '{self.path}'", "its recorder is closed", do="Another Recorder of this folder goes on."
            )

    def _start(self, episode: Episode) -> None:
        """The first episode decides the columns."""
        if not self._handles:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock()
            if any(self.path.glob("[!.]*")):  # another recorder was faster
                (self.path / LOCK).unlink()
                raise DataError(str(self.path), "already exists", do="Choose another name or remove it first.")
        self._first = episode
        self._layout = StoreLayout.of(episode, spec_of_episode(episode, self.space))
        write_journal_card(self.path, self._layout, self._facts())
        for name in self._layout.rows:
            handle = self._open(f"{name}.npy", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            write_all(handle, self._layout.header(name))
            self._columns[name] = Growing(handle)
        self._journal = self._open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        sync_directory(self.path)
        sync_directory(self.path.parent)

    def _append(self, episode: Episode) -> None:
        """Rows first, then the line that makes them count."""
        checksum = 0
        for name, values in columns_of(episode).items():
            checksum = zlib.crc32(self._columns[name].append(values), checksum)
        entry = Entry(len(episode), episode.terminated, episode.truncated, episode.final_known, checksum)
        write_all(self._journal, entry.line())
        self._entries.append(entry)
        self.steps += entry.length
        if self.episodes % SYNC_EPISODES == 0:
            for handle in [*(column.handle for column in self._columns.values()), self._journal]:
                os.fsync(handle)

    def _facts(self) -> dict[str, Any]:
        named = {"env": self.env} if self.env else {}
        return {"recipe": self.recipe, "precision": self.precision, **named}

    def _take_up(self) -> None:
        """Go on with a folder that was left unfinished: cut what is behind its last whole episode."""
        layout, facts = read_journal_card(self.path)
        if facts != self._facts() or layout.spec.action != self.space:
            raise DataError(
                str(self.path),
                "holds an unfinished recording of something else",
                do="Remove it or choose another name.",
            )
        entries, lost = whole_episodes(self.path, layout)
        if lost > SYNC_EPISODES:
            raise DataError(
                str(self.path),
                f"is damaged: {len(entries)} of {len(entries) + lost} recorded episodes are whole, and no crash loses "
                f"more than {SYNC_EPISODES}",
                do="Nothing was cut. Convert it to keep the whole ones, or remove it.",
            )
        if not entries:
            return
        self._first, self._layout, self._entries = map_episodes(self.path, layout, entries).episode(0), layout, entries
        self.steps = sum(entry.length for entry in entries)
        for name in layout.rows:
            rows = layout.count(name, entries)
            self._columns[name] = Growing(self._open(f"{name}.npy", os.O_RDWR), rows)
            self._columns[name].cut(len(layout.header(name)), rows * layout.row_bytes(name))
        self._journal = self._open(JOURNAL, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._journal, sum(len(entry.line()) for entry in entries))

    def _open(self, name: str, flags: int) -> int:
        """A file of the folder to write to; a link would lead the writer elsewhere."""
        if (self.path / name).is_symlink():
            raise DataError(f"{self.path / name}", "refused: a link to another place", do="Put the file itself there.")
        handle = os.open(self.path / name, flags | os.O_NOFOLLOW, 0o644)
        self._handles.append(handle)
        return handle

    def _publish(self, layout: StoreLayout) -> None:
        """Index and manifest; with the manifest the folder is a store, and what recording needed can go."""
        facts = {name: column.finish(layout, name) for name, column in self._columns.items()}
        for name, array in episode_index(self._entries).arrays().items():
            (self.path / f"{name}.npy").unlink(missing_ok=True)
            facts[name] = write_column(self.path / f"{name}.npy", array, [array])
        write_manifest(self.path, layout.spec, facts, self.recipe, self.env, has_rewards=self.has_rewards)
        _clear(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()


def settle(path: Path) -> bool:
    """Clear away what a recorder that died after its last file left in a finished store; whether there was anything."""
    if not (path / MANIFEST).is_file() or not any((path / name).exists() for name in LEFTOVERS):
        return False
    handle = _lock(path)
    try:
        _clear(path)
    finally:
        release(handle)
    return True


def _lock(path: Path) -> int:
    do = "Wait for it, stop it, or choose another name."
    return lock_folder(path, DataError, f"dataset '{path}'", do)


def _clear(path: Path) -> None:
    for name in LEFTOVERS:
        (path / name).unlink(missing_ok=True)
    sync_directory(path)


def _close(handles: list[int]) -> None:
    while handles:
        release(handles.pop())


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
    with (
        new_folder(path) as draft,
        Recorder(draft, space, precision=precision, recipe=recipe, name=recording.name, env=recording.env) as recorder,
    ):
        recorder.has_rewards = recording.has_rewards
        for episode in recording.episodes():
            recorder.add(episode)
            if on_steps is not None:
                on_steps(recorder.steps)
    return path


@final
@dataclass
class Growing:
    """The handle is its owner's to close."""

    handle: int
    rows: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def append(self, values: Array) -> memoryview:
        content = np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")
        self.digest.update(content)
        write_all(self.handle, content)
        self.rows += len(values)
        return content

    def cut(self, start: int, size: int) -> None:
        """Cut the file behind its whole rows, digest them, and stand at the end."""
        os.ftruncate(self.handle, start + size)
        os.lseek(self.handle, start, os.SEEK_SET)
        while piece := os.read(self.handle, PIECE):
            self.digest.update(piece)

    def finish(self, layout: StoreLayout, name: str) -> ColumnFacts:
        os.pwrite(self.handle, layout.header(name, self.rows), 0)
        os.fsync(self.handle)
        dtype, row = layout.rows[name]
        return ColumnFacts(dtype, (self.rows, *row), self.digest.hexdigest())


def write_all(handle: int, content: bytes | memoryview) -> None:
    """All of it: a disk that fills up takes a part without a word, and tells with the next one."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
