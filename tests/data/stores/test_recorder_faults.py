"""A recorder that meets trouble: killed while it finishes, a full disk, a rival, damage, a draft of a dead process."""

import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.core.errors import DataError
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.stores import recorder as recorder_file
from understudy.data.stores.journal import JOURNAL, is_unfinished, open_unfinished
from understudy.data.stores.recorder import Recorder, record
from understudy.data.stores.store import is_store, open_store, write_store
from worlds import random_dataset, random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))
OPERATIONS = ("open", "write", "pwrite", "fsync", "replace", "unlink", "close")


def in_child(job: Callable[[], None]) -> int:
    """A forked process' wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            job()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def open_files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def unfinished(path: Path, count: int = 3) -> Path:
    recorder = Recorder(path, BOX)
    for episode in random_episodes(count):
        recorder.add(episode)
    recorder.close()
    return path


def die_at(count: int) -> None:
    """SIGKILL in place of this process' n-th file operation from now on."""
    left = count

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            return operation(*args, **options)

        return call

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))


def finish_dying_at(path: Path, count: int) -> int:
    def job() -> None:
        recorder = Recorder(path, BOX)
        die_at(count)
        recorder.finish()

    return in_child(job)


def test_killed_at_any_operation_of_finishing_nothing_is_lost(tmp_path: Path) -> None:
    """Afterwards it is a whole store, or a recording that another recorder finishes to the same store."""
    whole = Dataset.from_episodes(random_episodes(3), BOX).fingerprint
    deaths = stores = 0
    for count in range(1, 200):
        path = unfinished(tmp_path / str(count))
        status = finish_dying_at(path, count)
        if not os.WIFSIGNALED(status):
            assert status == 0
            break
        deaths += 1
        stores += is_store(path)
        if not is_store(path):
            assert open_unfinished(path).fingerprint == whole
            assert Recorder(path, BOX).finish() == path
        assert open_store(path).fingerprint == whole
    assert deaths > 30
    assert 0 < stores < deaths


def test_a_full_disk_loses_the_episode_that_met_it(tmp_path: Path) -> None:
    path, episodes = tmp_path / "a", random_episodes(30)

    def job() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        recorder = Recorder(path, BOX)
        with suppress(OSError):
            for episode in episodes:
                recorder.add(episode)

    assert in_child(job) == 0
    kept = open_unfinished(path)
    assert 0 < kept.episodes < 30
    with Recorder(path, BOX) as recorder:
        for episode in episodes[recorder.episodes :]:
            recorder.add(episode)
    assert open_store(path).fingerprint == Dataset.from_episodes(episodes, BOX).fingerprint


def test_after_a_failed_write_nothing_is_added_in_the_wrong_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = random_episodes(3)
    recorder = Recorder(tmp_path / "a", BOX)
    recorder.add(episodes[0])
    write, calls = os.write, 0

    def failing(handle: int, content: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        return write(handle, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing)
        with pytest.raises(OSError, match="No space"):
            recorder.add(episodes[1])
    for action in (lambda: recorder.add(episodes[2]), recorder.finish):
        with pytest.raises(DataError, match="its recorder is closed"):
            action()
    with Recorder(tmp_path / "a", BOX) as again:
        assert again.episodes == 1
        again.add(episodes[1])
    assert open_store(tmp_path / "a").fingerprint == Dataset.from_episodes(episodes[:2], BOX).fingerprint


def test_writes_that_take_only_a_part_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:7]))
    with Recorder(tmp_path / "a", BOX) as recorder:
        for episode in random_episodes(2):
            recorder.add(episode)
    monkeypatch.undo()
    assert open_store(tmp_path / "a").fingerprint == Dataset.from_episodes(random_episodes(2), BOX).fingerprint


def test_a_rival_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    episodes = random_episodes(2)
    first, late = Recorder(tmp_path / "a", BOX), Recorder(tmp_path / "a", BOX)
    first.add(episodes[0])
    told = f"another process .pid {os.getpid()}. is writing it"
    with pytest.raises(DataError, match=told):
        Recorder(tmp_path / "a", BOX)
    with pytest.raises(DataError, match=told):
        late.add(episodes[1])
    first.close()
    with Recorder(tmp_path / "a", BOX) as second:
        second.add(episodes[1])
    assert open_store(tmp_path / "a").fingerprint == Dataset.from_episodes(episodes, BOX).fingerprint
    assert not [file for file in (tmp_path / "a").iterdir() if file.suffix != ".npy" and file.name != "manifest.json"]


def test_a_recorder_that_came_too_late_writes_nothing(tmp_path: Path) -> None:
    first, late = Recorder(tmp_path / "a", BOX), Recorder(tmp_path / "a", BOX)
    first.add(random_episodes(1)[0])
    first.finish()
    before = {file.name: file.read_bytes() for file in (tmp_path / "a").glob("[!.]*")}
    with pytest.raises(DataError, match="already exists"):
        late.add(random_episodes(1)[0])
    assert {file.name: file.read_bytes() for file in (tmp_path / "a").glob("[!.]*")} == before


def test_a_forgotten_recorder_frees_its_folder(tmp_path: Path) -> None:
    before = open_files()
    recorder = Recorder(tmp_path / "a", BOX)
    recorder.add(random_episodes(1)[0])
    assert open_files() > before
    del recorder
    assert open_files() == before
    Recorder(tmp_path / "a", BOX).close()
    assert open_files() == before


def test_damage_that_no_crash_makes_is_told_and_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_file, "SYNC_EPISODES", 4)
    path = unfinished(tmp_path / "a", 9)
    rewards = bytearray((path / "reward.npy").read_bytes())
    rewards[-7 * 20 * 4] ^= 1  # in the third episode
    (path / "reward.npy").write_bytes(rewards)
    with pytest.raises(DataError, match="is damaged: 2 of 9 recorded episodes are whole"):
        Recorder(path, BOX)
    assert len((path / JOURNAL).read_bytes().splitlines()) == 9
    assert (path / "reward.npy").read_bytes() == rewards
    assert open_unfinished(path).episodes == 2


def test_what_a_dead_process_of_the_same_number_left_is_not_taken_up(tmp_path: Path) -> None:
    """In a container every process may have the number 1."""
    dataset = random_dataset()
    for name in ("a", "b"):
        unfinished(tmp_path / f".{name}.{os.getpid()}.understudy.draft")
    record(dataset.recording(), tmp_path / "a", dataset.spec.action)
    write_store(dataset, tmp_path / "b")
    assert open_store(tmp_path / "a").fingerprint == open_store(tmp_path / "b").fingerprint == dataset.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_link_does_not_lead_the_writer_elsewhere(tmp_path: Path) -> None:
    path = unfinished(tmp_path / "a")
    (path / "reward.npy").rename(tmp_path / "mine.npy")
    (path / "reward.npy").symlink_to(tmp_path / "mine.npy")
    before = (tmp_path / "mine.npy").read_bytes()
    with pytest.raises(DataError, match="refused: a link to another place"):
        Recorder(path, BOX)
    (path / JOURNAL).write_bytes(b"")  # now it would start over and empty every file
    with pytest.raises(DataError, match="refused: a link to another place"):
        Recorder(path, BOX).add(random_episodes(1)[0])
    assert (tmp_path / "mine.npy").read_bytes() == before
    assert is_unfinished(path)


def test_rows_without_numbers_are_taken_up(tmp_path: Path) -> None:
    episode = random_episodes(1)[0]
    episode.extra["nothing"] = np.empty((20, 0), np.float32)  # type: ignore[index]
    recorder = Recorder(tmp_path / "a", BOX)
    recorder.add(episode)
    recorder.close()
    assert open_store(Recorder(tmp_path / "a", BOX).finish()).extra["nothing"].shape == (20, 0)
