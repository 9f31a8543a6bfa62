"""A recorder that is killed keeps every finished episode, and the next one goes on as if nothing had happened."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.stores.journal import JOURNAL, is_unfinished, open_unfinished
from understudy.data.stores.recorder import Recorder, record
from understudy.data.stores.store import MANIFEST, is_store, open_store, store_recipe, write_store
from worlds import random_dataset, random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def varied(count: int = 7) -> list[Episode]:
    """Different lengths and ends, with bytes, wide numbers and extra columns."""
    rng = np.random.default_rng(3)
    episodes = []
    for number in range(count):
        steps, known = int(rng.integers(1, 9)), number % 3 != 2
        slots = steps + known
        observations = {
            "state": rng.standard_normal((slots, 3)),
            "image": rng.integers(0, 255, (slots, 2, 2), np.uint8),
        }
        episodes.append(
            Episode(
                observations,
                rng.uniform(-1, 1, (steps, 2)),
                rng.standard_normal(steps),
                terminated=number % 3 == 0,
                truncated=number % 3 == 1,
                final_known=known,
                extra={"behaviour_log_prob": rng.standard_normal(steps), "step": np.arange(steps)},
            )
        )
    return episodes


def recorded(path: Path, episodes: list[Episode], space: Box | Discrete = BOX) -> Path:
    with Recorder(path, space, precision="source") as recorder:
        for episode in episodes:
            recorder.add(episode)
    return path


def same(left: Dataset, right: Dataset) -> None:
    assert left.spec == right.spec
    for (name, one), (other_name, other) in zip(left.columns().items(), right.columns().items(), strict=True):
        assert name == other_name
        np.testing.assert_array_equal(one, other, strict=True)
    assert left.fingerprint == right.fingerprint


def test_a_recording_is_the_store_of_the_same_episodes(tmp_path: Path) -> None:
    memory = Dataset.from_episodes(varied(), BOX, precision="source")
    same(open_store(recorded(tmp_path / "a", varied())), memory)
    written = write_store(memory, tmp_path / "b")
    for name in [*memory.columns(), "nothing else"][:-1]:
        assert (tmp_path / "a" / f"{name}.npy").read_bytes() == (written / f"{name}.npy").read_bytes()
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == sorted(file.name for file in written.iterdir())


def test_masks_and_choices_are_recorded(tmp_path: Path) -> None:
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], bool)
    episode = Episode({"state": np.ones((3, 2))}, np.array([0, 2]), np.ones(2), True, False, mask=mask)
    opened = open_store(recorded(tmp_path / "a", [episode], Discrete(3)))
    assert opened.spec.action == Discrete(3)
    assert opened.mask is not None
    np.testing.assert_array_equal(opened.mask.numpy(), mask)
    np.testing.assert_array_equal(opened.actions.numpy(), [0, 2])


def kill_during(path: Path, episodes: list[Episode], die: Callable[[int], bool]) -> None:
    """A child records; it dies by SIGKILL inside the write for which `die` says so."""
    child = os.fork()
    if child == 0:
        write, calls = os.write, 0

        def dying(handle: int, content: bytes) -> int:
            nonlocal calls
            calls += 1
            if die(calls):
                if len(content) > 1:
                    write(handle, content[: len(content) // 2])  # a torn write
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            return write(handle, content)

        os.write = dying  # type: ignore[assignment]
        recorded(path, episodes)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


@pytest.mark.parametrize("at", range(1, 64))
def test_killed_at_any_write_it_keeps_finished_episodes_and_goes_on(tmp_path: Path, at: int) -> None:
    """63 writes: a card, six headers, then six columns and a journal line for each of eight episodes."""
    episodes, path = varied(8), tmp_path / "a"
    kill_during(path, episodes, lambda calls: calls == at)
    assert not is_store(path)
    finished = max(0, (at - 8) // 7)
    if finished:
        same(open_unfinished(path), Dataset.from_episodes(episodes[:finished], BOX, precision="source"))
    with Recorder(path, BOX, precision="source") as recorder:
        assert recorder.episodes == finished
        for episode in episodes[recorder.episodes :]:
            recorder.add(episode)
    same(open_store(path), Dataset.from_episodes(episodes, BOX, precision="source"))


def test_what_a_power_cut_tore_is_left_out(tmp_path: Path) -> None:
    """The journal reached the disk, the last rows of one column did not."""
    path = tmp_path / "a"
    recorder = Recorder(path, BOX, precision="source")
    for episode in varied(5):
        recorder.add(episode)
    recorder.close()
    size = (path / "reward.npy").stat().st_size
    os.truncate(path / "reward.npy", size - 8)
    os.truncate(path / "reward.npy", size)  # the missing bytes read as zeros
    same(open_unfinished(path), Dataset.from_episodes(varied(5)[:4], BOX, precision="source"))


@pytest.mark.parametrize(
    "damage", ["{}\n", "[1, true, false, true]\n", "[0, true, false, true, 0]\n", "\x00" * 40, "[["]
)
def test_a_torn_journal_line_ends_the_recording(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a"
    recorder = Recorder(path, BOX, precision="source")
    for episode in varied(3):
        recorder.add(episode)
    recorder.close()
    with (path / JOURNAL).open("a") as journal:
        journal.write(damage)
    assert open_unfinished(path).episodes == 3


def test_nothing_is_recorded_over(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a", varied())
    with pytest.raises(DataError, match="already exists"):
        Recorder(path, BOX)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="already exists"):
        Recorder(tmp_path / "file", BOX)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    with pytest.raises(DataError, match="already exists"):
        Recorder(tmp_path / "folder", BOX)


def test_an_unfinished_recording_of_something_else_is_not_taken_up(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a", BOX, recipe={"seed": 1})
    recorder.add(random_episodes(1)[0])
    recorder.close()
    for space, recipe in ((BOX, {"seed": 2}), (Box((-2.0, -2.0), (2.0, 2.0)), {"seed": 1})):
        with pytest.raises(DataError, match="unfinished recording of something else"):
            Recorder(tmp_path / "a", space, recipe=recipe)
    Recorder(tmp_path / "a", BOX, recipe={"seed": 1}).finish()
    assert store_recipe(tmp_path / "a") == {"seed": 1}


def test_a_bad_episode_is_refused_and_the_rest_stays(tmp_path: Path) -> None:
    good = random_episodes(2)
    recorder = Recorder(tmp_path / "a", BOX)
    recorder.add(good[0])
    for bad, told in (
        (replace(good[1], rewards=np.full(20, np.nan)), "episode 1, rewards, row 0: not finite"),
        (replace(good[1], actions=np.full((20, 2), 3.0)), "20 of 20 actions lie outside"),
        (replace(good[1], extra={"more": np.ones(20)}), "further columns differ"),
        (replace(good[1], observations={"other": np.ones((21, 3))}), "observations differ"),
    ):
        with pytest.raises(DataError, match=told):
            recorder.add(bad)
    recorder.add(good[1])
    same(open_store(recorder.finish()), Dataset.from_episodes(good, BOX))


def test_an_error_inside_leaves_it_unfinished(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Recorder(tmp_path / "a", BOX) as recorder:
            recorder.add(random_episodes(1)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert is_unfinished(tmp_path / "a")


def test_no_episode_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no episodes"), Recorder(tmp_path / "a", BOX):
        pass
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["../a", "a/b", "", "x" * 101, "a b"])
def test_a_column_name_cannot_wander(tmp_path: Path, name: str) -> None:
    episode = replace(random_episodes(1)[0], extra={name: np.ones(20)})
    with pytest.raises(DataError, match="a column cannot be a file"):
        Recorder(tmp_path / "a", BOX).add(episode)


def test_streaming_a_recording_gives_the_same_store_or_nothing(tmp_path: Path) -> None:
    dataset = random_dataset()
    told: list[int] = []
    record(dataset.recording(), tmp_path / "a", dataset.spec.action, on_steps=told.append)
    same(open_store(tmp_path / "a"), dataset)
    assert told == [20, 40, 60, 80, 100, 120]
    half = replace(
        dataset.recording(), play=lambda: iter([dataset.episode(0), replace(dataset.episode(1), rewards=np.ones(3))])
    )
    with pytest.raises(DataError, match="rewards do not match"):
        record(half, tmp_path / "b", dataset.spec.action)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    with pytest.raises(DataError, match="already exists"):
        record(dataset.recording(), tmp_path / "a", dataset.spec.action)


def test_a_manifest_written_by_a_recorder_is_sealed(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a", varied())
    manifest = json.loads((path / MANIFEST).read_text())
    text = (path / MANIFEST).read_text().replace(manifest["fingerprint"][:8], "00000000")
    (path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match="not a readable store"):
        open_store(path)
