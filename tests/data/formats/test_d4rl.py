"""D4RL's flat HDF5: every boundary rule, what is told, and exact round trips."""

from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest

from hdf5_makers import flat_columns, in_child, odd_episodes, write_columns
from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.d4rl import open_d4rl
from understudy.data.formats.d4rl_writer import write_d4rl
from worlds import random_dataset

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def test_ends_are_kept_apart_and_final_observations_come_back(tmp_path: Path) -> None:
    columns = flat_columns(episodes=3, steps=5)
    recording = open_d4rl(write_columns(tmp_path / "hopper_medium-v2.hdf5", columns))
    episodes = list(recording.episodes())
    assert [len(episode) for episode in episodes] == [5, 5, 5]
    assert [episode.terminated for episode in episodes] == [True, False, False]
    assert [episode.truncated for episode in episodes] == [False, True, True]
    assert all(episode.final_known for episode in episodes)
    np.testing.assert_array_equal(episodes[1].observations["state"][-1], columns["next_observations"][9])
    np.testing.assert_array_equal(episodes[2].rewards, columns["rewards"][10:])
    assert recording.steps == 15


def test_without_successors_the_row_after_a_timeout_is_not_used(tmp_path: Path) -> None:
    columns = flat_columns(episodes=3, steps=5, successors=False)
    recording = open_d4rl(write_columns(tmp_path / "x.hdf5", columns))
    dataset = Dataset.from_episodes(recording.episodes(), BOX)
    assert dataset.index.final_known.tolist() == [False, False, False]
    assert [len(episode.observations["state"]) for episode in recording.episodes()] == [5, 5, 5]
    valid = dataset._td_valid.numpy()
    assert np.flatnonzero(~valid).tolist() == [9, 14], "a terminal needs no successor, a time limit does"


def test_the_end_of_the_array_is_no_terminal(tmp_path: Path) -> None:
    columns = {name: values[:12] for name, values in flat_columns(episodes=3, steps=5).items()}
    *_, last = open_d4rl(write_columns(tmp_path / "x.hdf5", columns)).episodes()
    assert (len(last), last.terminated, last.truncated) == (2, False, False)


def test_old_files_are_cut_by_the_clock(tmp_path: Path) -> None:
    """Version 0 marks no timeouts; D4RL itself restarts the clock after every terminal."""
    columns = flat_columns(episodes=4, steps=5, successors=False)
    columns["terminals"] = np.isin(np.arange(20), [6, 19])
    del columns["timeouts"]
    path = write_columns(tmp_path / "x.hdf5", columns)
    recording = open_d4rl(path, episode_steps=5)
    ends = [(len(episode), episode.terminated, episode.truncated) for episode in recording.episodes()]
    assert ends == [(5, False, True), (2, True, False), (5, False, True), (5, False, True), (3, True, False)]
    assert "2 episodes longer than episode_steps=5: cut there." in recording.notes
    assert any("set episode_steps to it" in note for note in open_d4rl(path).notes)


def test_a_group_per_episode_is_told(tmp_path: Path) -> None:
    """As robomimic writes it: nothing at the top is a column."""
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["data/demo_0/obs/state"] = np.zeros((3, 2))
    with pytest.raises(DataError, match=r"no columns at its top: got groups data, expected observations.*a group per"):
        open_d4rl(tmp_path / "x.hdf5")


def test_infos_and_metadata(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        **flat_columns(),
        "infos/qpos": np.zeros((15, 4)),
        "infos/action_log_probs": np.arange(15.0),
        "metadata/policy/fc0/weight": np.zeros((3, 3)),
    }
    path = write_columns(tmp_path / "x.hdf5", columns)
    with h5py.File(path, "a") as file:
        file["metadata/algorithm"] = "SAC"
    recording = open_d4rl(path)
    episodes = list(recording.episodes())
    assert set(episodes[0].extra) == {"behaviour_log_prob"}
    assert episodes[1].extra["behaviour_log_prob"].tolist() == [5, 6, 7, 8, 9]
    assert "Infos are not read: qpos." in recording.notes
    assert "'metadata' is not read." in recording.notes


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse.hdf5", "issue 77"),
        ("maze2d-umaze-sparse-v1.hdf5", "late_rewards=true"),
        ("Ant_maze_u-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5", "issue 199"),
        ("Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5", ""),
        ("hopper_medium-v2.hdf5", ""),
    ],
)
def test_known_bugs_are_told_by_name(tmp_path: Path, name: str, told: str) -> None:
    notes = open_d4rl(write_columns(tmp_path / name, flat_columns())).notes
    assert any(told in note for note in notes) if told else not any("issue" in note for note in notes)


def test_terminals_in_clusters_are_told(tmp_path: Path) -> None:
    columns = flat_columns(successors=False)
    columns["terminals"][4:7] = True
    recording = open_d4rl(write_columns(tmp_path / "x.hdf5", columns))
    assert [len(episode) for episode in recording.episodes()] == [5, 1, 1, 3, 5]
    assert any(note.startswith("2 terminal rows follow a terminal row") for note in recording.notes)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("precision", ["float32", "source"])
def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path, mask: bool, precision: Any) -> None:
    space = Discrete(4) if mask else Box((-1.0, -1.1), (1.0, 1.1))
    dataset = Dataset.from_episodes(odd_episodes(mask=mask), space, precision=precision)
    write_d4rl(dataset, tmp_path / "x.hdf5", env="Odd-v0")
    recording = open_d4rl(tmp_path / "x.hdf5")
    assert recording.space == space
    assert recording.env == "Odd-v0"
    again = Dataset.from_episodes(recording.episodes(), space, precision=precision)
    assert again.fingerprint == dataset.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["x.hdf5"]


def test_others_find_what_they_expect(tmp_path: Path) -> None:
    dataset = random_dataset()
    write_d4rl(dataset, tmp_path / "x.hdf5")
    with h5py.File(tmp_path / "x.hdf5") as file:
        assert {"observations", "actions", "rewards", "terminals", "timeouts", "next_observations"} < set(file)
        assert len({len(file[name]) for name in ("observations", "rewards", "timeouts", "infos/episode_id")}) == 1
        inside = ~(file["terminals"][:-1] | file["timeouts"][:-1])
        np.testing.assert_array_equal(file["observations"][1:][inside], file["next_observations"][:-1][inside])


def test_nothing_is_overwritten_and_nothing_half_done_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset()
    (tmp_path / "x.hdf5").write_bytes(b"mine")
    with pytest.raises(DataError, match="already exists"):
        write_d4rl(dataset, tmp_path / "x.hdf5")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("understudy.data.formats.d4rl_writer._join", fail)
    with pytest.raises(OSError, match="disk full"):
        write_d4rl(dataset, tmp_path / "y.hdf5")
    assert [path.name for path in tmp_path.iterdir()] == ["x.hdf5"]


@pytest.mark.parametrize("name", ["log_prob", "action_mask", "a/b"])
def test_names_that_mean_something_else_are_refused(tmp_path: Path, name: str) -> None:
    episode = Episode(
        {"state": np.zeros((3, 1))}, np.zeros((2, 2)), np.zeros(2), True, False, extra={name: np.zeros(2)}
    )
    with pytest.raises(DataError, match="another meaning"):
        write_d4rl(Dataset.from_episodes([episode], BOX), tmp_path / "x.hdf5")


def test_a_file_far_larger_than_its_reader(tmp_path: Path) -> None:
    """120 MB are played in a small part of that."""
    rows, width = 100_000, 150
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for name in ("observations", "next_observations"):
            file.create_dataset(name, (rows, width), "f4", chunks=(1000, width))
        block = np.random.default_rng(0).standard_normal((1001, width)).astype(np.float32)
        for first in range(0, rows, 1000):
            file["observations"][first : first + 1000] = block[:-1]
            file["next_observations"][first : first + 1000] = block[1:]
        file["actions"] = np.zeros((rows, 2), np.float32)
        file["rewards"] = np.zeros(rows, np.float32)
        file["terminals"] = np.zeros(rows, bool)
        file["timeouts"] = np.arange(rows) % 1000 == 999
    before = in_child(lambda: open_d4rl(tmp_path / "x.hdf5"))[1]
    code, used = in_child(lambda: [len(episode) for episode in open_d4rl(tmp_path / "x.hdf5").episodes()])
    assert code == 0
    assert used - before < 60_000
