"""Minari folders we write: opened by the real package, and read back to the bit."""

import importlib.util
import socket
import time
from pathlib import Path
from typing import Any

import minari  # type: ignore[import-untyped]
import numpy as np
import pytest

from hdf5_makers import odd_episodes
from understudy.core.errors import DataError, MissingPackageError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.formats.minari.published import download_minari
from understudy.data.formats.minari.reader import open_minari
from understudy.data.formats.minari.writer import write_minari
from worlds import random_dataset


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def test_minari_opens_and_iterates_it(root: Path) -> None:
    dataset = random_dataset()
    facts = {"author": ["Somebody"], "ref_min_score": -1.5, "ref_max_score": 2.0}
    path = write_minari(dataset, "ours/random-v3", env="Pendulum-v1", facts=facts)
    assert path == root / "ours" / "random-v3"
    theirs = minari.load_dataset("ours/random-v3")
    assert (theirs.total_episodes, theirs.total_steps) == (dataset.episodes, dataset.steps)
    assert theirs.env_spec.id == "Pendulum-v1"
    assert theirs.storage.metadata["author"] == {"Somebody"}
    assert "ours/random-v3" in minari.list_local_datasets()
    for number, episode in enumerate(theirs.iterate_episodes()):
        ours = dataset.episode(number)
        np.testing.assert_array_equal(episode.observations, ours.observations["state"])
        np.testing.assert_array_equal(episode.actions, ours.actions)
        np.testing.assert_array_equal(episode.rewards, ours.rewards)
        assert (episode.terminations[-1], episode.truncations[-1]) == (ours.terminated, ours.truncated)
        assert theirs.observation_space.contains(episode.observations[0])
        assert theirs.action_space.contains(episode.actions[0])
        assert "infos=dict" in repr(episode)
    recording = open_minari("ours/random-v3")
    assert recording.env == "Pendulum-v1"
    assert recording.facts["ref_max_score"] == 2.0
    assert Dataset.from_episodes(recording.episodes(), dataset.spec.action).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("precision", ["float32", "source"])
def test_what_is_written_is_read_back_to_the_bit(mask: bool, precision: Any) -> None:
    """Groups, images, masks, further columns, every kind of end; a terminal without its final observation, too."""
    space = Discrete(4) if mask else Box((-1.0, -1.1), (1.0, 1.1))
    episodes = odd_episodes(mask=mask)[:4]
    dataset = Dataset.from_episodes(episodes, space, precision=precision)
    assert not dataset.index.final_known[3]
    write_minari(dataset, "odd-v0")
    recording = open_minari("odd-v0")
    assert recording.space == space
    again = Dataset.from_episodes(recording.episodes(), space, precision=precision)
    assert again.fingerprint == dataset.fingerprint
    theirs = list(minari.load_dataset("odd-v0").iterate_episodes())
    np.testing.assert_array_equal(theirs[1].observations["image"], dataset.episode(1).observations["image"])
    np.testing.assert_array_equal(theirs[1].infos["pose"][1:], dataset.episode(1).extra["pose"])
    assert [len(episode.observations["state"]) for episode in theirs] == [len(episode) + 1 for episode in theirs]


def test_a_cut_episode_without_its_final_observation_needs_a_choice() -> None:
    space = Box((-1.0, -1.0), (1.0, 1.0))
    dataset = Dataset.from_episodes(odd_episodes(), space)
    with pytest.raises(DataError, match="2 episodes without a final observation"):
        write_minari(dataset, "odd-v0")
    write_minari(dataset, "odd-v0", unknown_finals="drop")
    again = Dataset.from_episodes(open_minari("odd-v0").episodes(), space)
    assert again.index.lengths.tolist() == [1, 2, 3, 4, 4, 5]
    np.testing.assert_array_equal(again.episode(5).observations["state"], dataset.episode(5).observations["state"])
    np.testing.assert_array_equal(again.episode(5).rewards, dataset.episode(5).rewards[:-1])
    assert again.index.truncated.tolist() == dataset.index.truncated.tolist()


def test_nothing_is_overwritten_and_nothing_half_done_is_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = random_dataset()
    write_minari(dataset, "a-v0")
    with pytest.raises(DataError, match="already exists"):
        write_minari(dataset, "a-v0")
    with pytest.raises(DataError, match="not a Minari id"):
        write_minari(dataset, "../a-v0")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("understudy.data.formats.minari.writer._metadata", fail)
    with pytest.raises(OSError, match="disk full"):
        write_minari(dataset, "b-v0")
    assert [path.name for path in root.iterdir()] == ["a-v0"]


def test_offline_is_told_at_once(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        before = time.monotonic()
        with pytest.raises(DataError, match=r"cannot be fetched: 127.0.0.1 does not answer"):
            download_minari("D4RL/door/human-v2", root)
        assert time.monotonic() - before < 5
    assert not list(root.iterdir())


def test_up_to_the_wire(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Somebody answers, but sends nothing: the client's error in our words, or which client is missing."""
    monkeypatch.setattr("understudy.data.formats.minari.published._reach", lambda remote, where: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    missing = importlib.util.find_spec("huggingface_hub") is None
    kind, match = (MissingPackageError, r"pip install 'minari\[hf\]'") if missing else (DataError, "could not be downl")
    with pytest.raises(kind, match=match):
        download_minari("D4RL/door/human-v2", root)
    with pytest.raises(DataError, match="not a Minari id"):
        download_minari("hf://someone/../door-v2", root)


def test_what_is_there_is_not_fetched_again(root: Path) -> None:
    path = write_minari(random_dataset(), "a-v0")
    assert download_minari("a-v0", root) == path
