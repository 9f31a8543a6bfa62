"""Npz files we write: read back, they are the same dataset to the bit."""

import errno
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats import npz, npz_writer
from understudy.data.formats.npz import open_npz
from understudy.data.formats.npz_writer import write_npz
from understudy.data.formats.packed import write_packed
from worlds import random_dataset, real_data

BOX = Box((-1.0, -2.0), (1.0, 0.3))
ENDS = [(True, False), (False, True), (False, False)]


def episode(
    steps: int,
    ends: tuple[bool, bool] = (False, True),
    *,
    known: bool = True,
    seed: int = 0,
    discrete: int = 0,
    wide: bool = False,
    masked: bool = False,
) -> Episode:
    rng = np.random.default_rng(seed)
    slots = steps + known
    kind = np.float64 if wide else np.float32
    choices = rng.integers(0, max(discrete, 1), steps)
    mask = rng.random((slots, max(discrete, 1))) < 0.5
    mask[np.arange(steps), choices] = True
    mask[:, 0] |= not ends[0]
    return Episode(
        {
            "state": rng.standard_normal((slots, 3)).astype(kind),
            "camera": rng.integers(0, 256, (slots, 2, 2, 3), np.uint8),
        },
        choices if discrete else rng.uniform([-1, -2], [1, 0.3], (steps, 2)).astype(kind),
        rng.standard_normal(steps).astype(kind),
        *ends,
        known,
        mask if masked else None,
        {
            "behaviour_log_prob": rng.standard_normal(steps).astype(kind),
            "timesteps": np.arange(steps),
            "dones": np.ones(steps, bool),  # a name that means something else to a reader
            "goal": rng.standard_normal((steps, 2)).astype(np.float32),
            "view": rng.integers(0, 9, (steps, 2, 2), np.uint8),
        },
    )


def round_trip(dataset: Dataset, folder: Path) -> Dataset:
    """What comes back of a flat file; a packed one gives the same."""
    read = []
    for write, name in ((write_npz, "x.npz"), (write_packed, "packed.npz")):
        write(dataset, folder / name)
        recording = open_npz(folder / name)
        assert recording.space == dataset.spec.action
        assert recording.steps == dataset.steps
        read.append(Dataset.from_episodes(recording.episodes(), dataset.spec.action, precision="source"))
    assert read[0].fingerprint == read[1].fingerprint
    return read[0]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("discrete", [0, 1, 4])
def test_a_round_trip_changes_nothing(tmp_path: Path, wide: bool, discrete: int) -> None:
    space: ActionSpace = Discrete(discrete) if discrete else BOX
    episodes = [
        episode(5 - number, ends, known=known, seed=number, discrete=discrete, wide=wide, masked=discrete > 0)
        for number, (ends, known) in enumerate((ends, known) for known in (True, False) for ends in ENDS[:2])
    ]
    dataset = Dataset.from_episodes(episodes, space, precision="source" if wide else "float32")
    again = round_trip(dataset, tmp_path)
    assert again.fingerprint == dataset.fingerprint
    for name, column in dataset.columns().items():
        np.testing.assert_array_equal(again.columns()[name], column, err_msg=name)
        assert again.columns()[name].dtype == column.dtype


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(ENDS), st.booleans()), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_any_mixture_of_ends_survives(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, tuple[bool, bool], bool]], same: bool, still: bool
) -> None:
    """Also where final observations equal the next episode's first, or stay at zero."""
    episodes = []
    for number, (steps, ends, known) in enumerate(parts):
        one = episode(steps, ends, known=known, seed=0 if same else number)
        blank = {name: values * 0 for name, values in one.observations.items()}
        episodes.append(replace(one, observations=blank) if still else one)
    dataset = Dataset.from_episodes(episodes, BOX)
    assert round_trip(dataset, tmp_path_factory.mktemp("trip")).fingerprint == dataset.fingerprint


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset()
    write_npz(dataset, tmp_path / "one.npz")
    monkeypatch.setattr(npz_writer, "BLOCK_ROWS", 7)
    write_npz(dataset, tmp_path / "other.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_others_find_the_names_they_know(tmp_path: Path) -> None:
    dataset = random_dataset(count=2, steps=3)
    write_npz(dataset, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert set(file.files) == {
            *("observations", "next_observations", "actions", "rewards", "terminals", "timeouts"),
            *("episode_id", "final_known", "about"),
        }
        assert file["timeouts"].tolist() == [False, False, True] * 2
        assert file["episode_id"].tolist() == [0, 0, 0, 1, 1, 1]
        np.testing.assert_array_equal(file["observations"][1:3], file["next_observations"][:2])
        np.testing.assert_array_equal(file["next_observations"][5], dataset.observations["state"][-1])


def test_a_packed_file_is_small_and_holds_a_store_s_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset(count=40, steps=50, state=11)
    write_npz(dataset, tmp_path / "flat.npz")
    write_packed(dataset, tmp_path / "x.npz")
    assert (tmp_path / "x.npz").stat().st_size < 0.6 * (tmp_path / "flat.npz").stat().st_size
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert set(file.files) == {*dataset.columns(), "about"}
        np.testing.assert_array_equal(file["observation.state"], dataset.observations["state"])
    monkeypatch.setattr(npz, "KEPT", 64)  # by blocks, as a file too large to be kept is read
    for _ in range(2):
        streamed = Dataset.from_episodes(open_npz(tmp_path / "x.npz").episodes(), dataset.spec.action)
        assert streamed.fingerprint == dataset.fingerprint
    write_packed(dataset, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "x.npz").read_bytes()
    with pytest.raises(DataError, match="already exists"):
        write_packed(dataset, tmp_path / "x.npz")
    with pytest.raises(DataError, match="its columns have names already"):
        open_npz(tmp_path / "x.npz", columns="obs=a")


def test_what_was_never_known_is_not_invented(tmp_path: Path) -> None:
    unknown = Dataset.from_episodes([episode(3, known=False), episode(2, known=False)], BOX)
    write_npz(unknown, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert not any(name.startswith("next_") for name in file.files)
    mixed = Dataset.from_episodes([episode(3, known=False), episode(2)], BOX)
    write_npz(mixed, tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz", allow_pickle=False) as file:
        assert file["final_known"].tolist() == [True, True, False, True, True]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("precious")
    with pytest.raises(DataError, match="already exists"):
        write_npz(random_dataset(), tmp_path / "x.npz")
    assert (tmp_path / "x.npz").read_text() == "precious"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = zipfile.ZipFile.open

    def full(self: zipfile.ZipFile, name: Any, *rest: Any, **options: Any) -> Any:
        if name.filename == "rewards.npy":
            raise OSError(errno.ENOSPC, "no space left")
        return write(self, name, *rest, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", full)
    with pytest.raises(OSError, match="no space left"):
        write_npz(random_dataset(), tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []


def test_names_that_would_not_come_back_are_refused(tmp_path: Path) -> None:
    odd = Dataset.from_episodes([replace(episode(2), extra={"a/b": np.zeros(2)})], BOX)
    with pytest.raises(DataError, match="a column's name cannot be written: got 'a/b'"):
        write_npz(odd, tmp_path / "x.npz")


def test_raw_rewards_are_written(tmp_path: Path) -> None:
    dataset = random_dataset()
    write_npz(dataset.with_rewards(lambda reward: reward * 0), tmp_path / "x.npz")
    again = Dataset.from_episodes(open_npz(tmp_path / "x.npz").episodes(), dataset.spec.action)
    assert torch.equal(again.rewards, dataset.rewards)


def test_a_space_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"observations": np.zeros((2, 1)), "actions": np.zeros((2, 1)), "timeouts": [0, 1]}
    for text in ("[", "{}", '{"action": 3}', '{"action": {"discrete": 0}}', '{"action": {"low": [0]}}', "[" * 100_000):
        np.savez(tmp_path / "x.npz", about=np.array(text), **plain)
        with pytest.raises(DataError):
            open_npz(tmp_path / "x.npz")


def test_a_real_file_makes_the_trip(tmp_path: Path) -> None:
    box = Box((-1.0,), (1.0,))
    recording = open_npz(real_data("pendulum_medium.npz"))
    dataset = Dataset.from_episodes(recording.episodes(), box)
    assert round_trip(dataset, tmp_path).fingerprint == dataset.fingerprint
