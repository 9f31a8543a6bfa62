"""Minari datasets that the real package wrote, read by our own code."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import minari  # type: ignore[import-untyped]
import numpy as np
import pytest
from gymnasium import spaces

from minari_makers import Nested, make_from, make_minari
from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.formats.minari.reader import find_minari, is_minari, minari_root, open_minari
from understudy.data.formats.minari.spaces import read_action_space, read_observation_space


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_episodes_are_those_minari_reads(env_id: str, storage: str) -> None:
    made = make_minari(
        env_id, "box/random-v0", data_format=storage, ref_min_score=-9.0, ref_max_score=2.5, author={"B", "A"}, steps=30
    )
    recording = open_minari("box/random-v0")
    episodes = list(recording.episodes())
    assert recording.steps == made.total_steps == sum(map(len, episodes))
    for ours, theirs in zip(episodes, made.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(ours.observations["state"], theirs.observations)
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)
        assert ours.observations["state"].dtype == theirs.observations.dtype
        assert (ours.terminated, ours.final_known) == (theirs.terminations[-1], True)
        assert ours.truncated == (theirs.truncations[-1] and not ours.terminated)
    assert recording.env == env_id
    assert recording.layout == f"minari {storage}"
    assert recording.facts["ref_min_score"] == -9.0
    assert recording.facts["ref_max_score"] == 2.5
    assert recording.facts["author"] == "A, B"
    assert recording.space == (Discrete(2) if env_id == "CartPole-v1" else Box((-2.0,), (2.0,)))
    assert recording.space is not None
    assert Dataset.from_episodes(recording.episodes(), recording.space).steps == recording.steps
    assert len(list(recording.episodes())) == len(episodes), "a recording can be played again"


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_nested_choices_texts_and_starts(storage: str) -> None:
    made = make_from(Nested(), "nested-v0", data_format=storage)
    recording = open_minari("nested-v0")
    for ours, theirs in zip(recording.episodes(), made.iterate_episodes(), strict=True):
        assert set(ours.observations) == {"body_joints", "body_grip", "room"}
        np.testing.assert_array_equal(ours.observations["body_joints"], theirs.observations["body"]["joints"])
        np.testing.assert_array_equal(ours.observations["body_grip"], theirs.observations["body"]["grip"])
        np.testing.assert_array_equal(ours.observations["room"].argmax(1) + 5, theirs.observations["room"])
        assert ours.observations["room"].dtype == np.uint8
        np.testing.assert_array_equal(ours.actions + 1, theirs.actions)
        assert ours.terminated
    assert recording.space == Discrete(4)
    assert "Observation 'order' is text and left out." in recording.notes
    assert "Actions are counted from 1 in the file and from 0 here." in recording.notes


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_a_discrete_observation_is_one_hot(storage: str) -> None:
    made = make_minari("FrozenLake-v1", "lake-v0", data_format=storage)
    for ours, theirs in zip(open_minari("lake-v0").episodes(), made.iterate_episodes(), strict=True):
        assert ours.observations["state"].shape == (len(ours) + 1, 16)
        np.testing.assert_array_equal(ours.observations["state"].argmax(1), theirs.observations)


class Camera(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (40, 32, 3), np.uint8)
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, *, still: bool) -> None:
        self._still = still
        self._clock = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._clock = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._clock += 1
        return self._see(), 0.0, False, self._clock == 5, {}

    def _see(self) -> Any:
        image = np.zeros((40, 32, 3), np.uint8) if self._still else self.np_random.integers(0, 255, (40, 32, 3))
        return np.asarray(image, np.uint8)


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
@pytest.mark.parametrize("still", [True, False])
def test_jpeg_images_are_decoded_and_called_lossy(storage: str, still: bool) -> None:
    """Equal images give rows of equal length, others do not: Minari stores them in different ways."""
    made = make_from(Camera(still=still), "camera-v0", data_format=storage)
    recording = open_minari("camera-v0")
    for ours, theirs in zip(recording.episodes(), made.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(ours.observations["state"], theirs.observations)
        assert ours.observations["state"].dtype == np.uint8
    assert any("lossy" in note for note in recording.notes)


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_raw_images_are_read_as_they_are(storage: str) -> None:
    made = make_from(Camera(still=False), "camera-v0", data_format=storage, jpeg_encoding=False)
    recording = open_minari("camera-v0")
    for ours, theirs in zip(recording.episodes(), made.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(ours.observations["state"], theirs.observations)
    assert not any("lossy" in note for note in recording.notes)


def test_infos_are_told_and_a_mask_is_read_when_asked_for() -> None:
    newest = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
    make_minari(newest, "taxi-v0", infos=("action_mask", "prob"), steps=20)
    recording = open_minari("taxi-v0")
    assert any("action_mask, prob" in note and "mask='action_mask'" in note for note in recording.notes)
    assert next(recording.episodes()).mask is None
    episode = next(open_minari("taxi-v0", mask="action_mask").episodes())
    assert episode.mask is not None
    assert episode.mask.shape == (len(episode) + 1, 6)


def test_both_flags_mean_terminated_and_a_lost_last_observation_is_said() -> None:
    buffer = minari.data_collector.EpisodeBuffer(
        observations=np.zeros((3, 2), np.float32),
        actions=np.zeros((3, 1), np.float32),
        rewards=[0.0, 1.0, 2.0],
        terminations=[False, False, True],
        truncations=[False, False, True],
    )
    minari.create_dataset_from_buffers(
        "odd-v0", [buffer], observation_space=spaces.Box(-1, 1, (2,)), action_space=spaces.Box(-1, np.inf, (1,))
    )
    recording = open_minari("odd-v0")
    (episode,) = recording.episodes()
    assert (episode.terminated, episode.truncated, episode.final_known) == (True, False, False)
    assert recording.space is None
    assert any("no finite bounds" in note for note in recording.notes)


def test_a_flag_in_the_middle_is_refused() -> None:
    buffer = minari.data_collector.EpisodeBuffer(
        observations=np.zeros((4, 2), np.float32),
        actions=np.zeros((3, 1), np.float32),
        rewards=[0.0, 1.0, 2.0],
        terminations=[False, True, False],
        truncations=[False, False, True],
    )
    minari.create_dataset_from_buffers(
        "odd-v0", [buffer], observation_space=spaces.Box(-1, 1, (2,)), action_space=spaces.Box(-1, 1, (1,))
    )
    with pytest.raises(DataError, match=r"episode 0, terminations, row 1: ends the episode before its last step"):
        list(open_minari("odd-v0").episodes())


@pytest.mark.parametrize(
    "name", ["../x-v0", "/etc/x-v0", "a/../../x-v0", "a//x-v0", "x", "x-v", "a b-v0", "", "C:\\x-v0"]
)
def test_ids_cannot_wander(name: str) -> None:
    with pytest.raises(DataError, match="not a Minari id"):
        find_minari(name, Path("nowhere"))


def test_a_missing_dataset_says_where_it_was_looked_for(root: Path) -> None:
    with pytest.raises(DataError, match=r"not found under .* Download it once"):
        open_minari("D4RL/door/human-v2")
    assert minari_root() == root
    assert not is_minari(root)


def test_a_folder_is_enough(tmp_path: Path) -> None:
    make_minari("CartPole-v1", "cart-v0")
    for folder in (tmp_path / "cart-v0", tmp_path / "cart-v0" / "data"):
        assert is_minari(folder)
        assert open_minari(folder).steps > 0


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_missing_episodes_are_not_overlooked(root: Path, storage: str) -> None:
    make_minari("CartPole-v1", "cart-v0", data_format=storage)
    path = root / "cart-v0" / "data" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "total_episodes": 4}))
    with pytest.raises(DataError, match="cut off"):
        open_minari("cart-v0")


@pytest.mark.parametrize(
    "space", [spaces.Tuple([spaces.Discrete(2)]), spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)]))]
)
def test_tuples_are_refused_in_a_sentence(space: Any) -> None:
    with pytest.raises(DataError, match="observation_space: cannot be read: got Tuple"):
        read_observation_space(minari.serialization.serialize_space(space), "x")


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([2, 2]), spaces.Dict(a=spaces.Discrete(2)), spaces.Box(0, 9, (2,), np.int64)]
)
def test_actions_we_cannot_take_are_refused_in_a_sentence(space: Any) -> None:
    with pytest.raises(DataError, match="action_space: cannot be read"):
        read_action_space(minari.serialization.serialize_space(space), "x")
