"""d4rl-pybullet: rows as its collector writes them, realigned to what really happened."""

from pathlib import Path

import numpy as np
import pytest

from hdf5_makers import write_columns
from understudy.core.errors import DataError
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.episode import Array
from understudy.data.formats.d4rl import open_d4rl

BOX = Box((-1.0, -1.0), (1.0, 1.0))
World = tuple[Array, Array, Array]


def lived(steps: int, seed: int) -> World:
    """n+1 observations, n actions, n rewards."""
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((steps + 1, 3)).astype(np.float32),
        rng.uniform(0.1, 1, (steps, 2)).astype(np.float32),
        rng.uniform(1, 2, steps).astype(np.float32),
    )


def collected(worlds: list[World], cut: int = 0) -> dict[str, Array]:
    """The loop of d4rl-pybullet's collector; `cut` rows are missing at the end."""
    rows = []
    for seen, actions, rewards in worlds:
        reward = 0.0
        for step in range(len(actions)):
            rows.append((seen[step], actions[step], [reward], [False]))
            reward = rewards[step]
        rows.append((seen[-1], np.zeros(2, np.float32), [reward], [True]))
    rows = rows[: len(rows) - cut]
    names = ("observations", "actions", "rewards", "terminals")
    return {name: np.array([row[number] for row in rows]) for number, name in enumerate(names)}


def test_every_step_gets_its_own_reward_and_the_last_row_is_an_observation(tmp_path: Path) -> None:
    worlds = [lived(7, 1), lived(1, 2), lived(4, 3)]
    recording = open_d4rl(write_columns(tmp_path / "x.hdf5", collected(worlds)))
    assert recording.layout == "d4rl-pybullet"
    assert recording.steps == 12
    for episode, (seen, actions, rewards) in zip(recording.episodes(), worlds, strict=True):
        np.testing.assert_array_equal(episode.observations["state"], seen)
        np.testing.assert_array_equal(episode.actions, actions)
        np.testing.assert_allclose(episode.rewards, rewards)
        assert (episode.terminated, episode.truncated, episode.final_known) == (True, False, True)
    assert Dataset.from_episodes(recording.episodes(), BOX).steps == 12
    assert any("rewards moved" in note for note in recording.notes)
    assert any("time_limit=1000" in note for note in recording.notes)


def test_an_unfinished_last_episode_is_cut_not_terminal(tmp_path: Path) -> None:
    worlds = [lived(7, 1), lived(5, 2)]
    recording = open_d4rl(write_columns(tmp_path / "x.hdf5", collected(worlds, cut=2)))
    *_, last = recording.episodes()
    assert (len(last), last.terminated, last.truncated) == (3, False, False)
    np.testing.assert_allclose(last.rewards, worlds[1][2][:3])
    assert any("unfinished" in note for note in recording.notes)


def test_a_last_row_alone_is_no_episode(tmp_path: Path) -> None:
    recording = open_d4rl(write_columns(tmp_path / "x.hdf5", collected([lived(7, 1), lived(5, 2)], cut=5)))
    assert [len(episode) for episode in recording.episodes()] == [7]
    assert recording.steps == 7
    assert any("single row" in note for note in recording.notes)


def changed(**columns: Array) -> dict[str, Array]:
    return {**collected([lived(7, 1), lived(4, 3)]), **columns}


@pytest.mark.parametrize(
    "columns",
    [
        changed(timeouts=np.zeros(13, bool)),
        changed(actions=np.ones((13, 2), np.float32)),
        changed(actions=np.zeros((13, 2), np.float32)),
        changed(actions=np.zeros((13, 1), np.int64)),
        changed(rewards=np.ones(13, np.float32)),
    ],
    ids=["timeouts", "terminal rows act", "nobody acts", "choices", "first reward"],
)
def test_ordinary_files_are_not_mistaken_for_it(tmp_path: Path, columns: dict[str, Array]) -> None:
    recording = open_d4rl(write_columns(tmp_path / "x.hdf5", columns))
    assert recording.layout == "flat"
    assert recording.steps == 13


def test_the_layout_can_be_said(tmp_path: Path) -> None:
    path = write_columns(tmp_path / "x.hdf5", collected([lived(7, 1)]))
    assert open_d4rl(path, layout="flat").steps == 8
    spoilt = write_columns(tmp_path / "y.hdf5", changed(rewards=np.ones(13, np.float32)))
    assert open_d4rl(spoilt, layout="pybullet").steps == 11
    with pytest.raises(DataError, match="no such layout"):
        open_d4rl(path, layout="bullet")  # type: ignore[arg-type]


def test_blocks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_columns(tmp_path / "x.hdf5", collected([lived(steps, steps) for steps in range(1, 30)]))
    whole = Dataset.from_episodes(open_d4rl(path).episodes(), BOX).fingerprint
    monkeypatch.setattr("understudy.data.formats.bullet.BLOCK_BYTES", 200)
    assert Dataset.from_episodes(open_d4rl(path).episodes(), BOX).fingerprint == whole
