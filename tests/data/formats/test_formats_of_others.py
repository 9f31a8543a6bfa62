"""d3rlpy, robomimic, LeRobot and Stable-Baselines3: files in the layouts these libraries write, read back."""

import json
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box, Discrete
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.run.loading import load_dataset
from worlds import random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def write_d3rlpy(path: Path, episodes: list[Episode]) -> Path:
    """As `ReplayBuffer.dump` of d3rlpy 2.x does."""
    with h5py.File(path, "w") as file:
        file.create_dataset("columns", data=["observations", "actions", "rewards", "terminated"])
        file.create_dataset("num_episodes", data=len(episodes))
        for number, episode in enumerate(episodes):
            observed = [values[: len(episode)] for values in episode.observations.values()]
            if len(observed) == 1:
                file.create_dataset(f"observations_{number}", data=observed[0])
            else:
                for part, values in enumerate(observed):
                    file.create_dataset(f"observations_{number}_{part}", data=values)
            file.create_dataset(f"actions_{number}", data=episode.actions)
            file.create_dataset(f"rewards_{number}", data=episode.rewards.reshape(-1, 1))
            file.create_dataset(f"terminated_{number}", data=episode.terminated)
        file.create_dataset("version", data="2.1")
    return path


def test_d3rlpy_2(tmp_path: Path) -> None:
    episodes = random_episodes(3, steps=4)
    recording = open_recording(write_d3rlpy(tmp_path / "x.h5", episodes))
    assert (recording.layout, recording.steps) == ("d3rlpy", 12)
    for mine, theirs in zip(recording.episodes(), episodes, strict=True):
        assert np.array_equal(mine.observations["state"], next(iter(theirs.observations.values()))[:4])
        assert np.array_equal(mine.actions, theirs.actions)
        assert np.array_equal(mine.rewards, theirs.rewards)
        assert (mine.terminated, mine.final_known) == (theirs.terminated, False)
    several = Episode({"a": np.ones((3, 2)), "b": np.zeros((3, 1))}, np.array([[1], [0]]), np.ones(2), True, False)
    dataset = load_dataset(write_d3rlpy(tmp_path / "y.h5", [several]))
    assert dataset.spec.action == Discrete(2)
    assert list(dataset.spec.observation) == ["observation_0", "observation_1"]
    with h5py.File(tmp_path / "y.h5", "a") as file:
        del file["num_episodes"]
        file["num_episodes"] = 7
    with pytest.raises(DataError, match=r"y.h5': has no 'actions_1': expected 7 episodes"):
        open_recording(tmp_path / "y.h5")


def test_d3rlpy_1(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("observations", data=np.arange(12.0).reshape(6, 2))
        file.create_dataset("actions", data=np.zeros((6, 2), np.float32))
        file.create_dataset("rewards", data=np.ones((6, 1)))
        file.create_dataset("terminals", data=np.array([0, 0, 1, 0, 0, 0.0]))
        file.create_dataset("episode_terminals", data=np.array([0, 0, 1, 0, 0, 1.0]))
        file.create_dataset("discrete_action", data=False)
        file.create_dataset("version", data="1.0")
    dataset = load_dataset(tmp_path / "x.h5", action_space=BOX)
    assert dataset.index.lengths.tolist() == [3, 3]
    assert (dataset.index.terminated.tolist(), dataset.index.truncated.tolist()) == ([True, False], [False, True])


def write_robomimic(path: Path, dones: list[list[int]]) -> Path:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = "{}"
        for number, done in enumerate(dones):
            demo, steps = file["data"].create_group(f"demo_{number}"), len(done)
            demo.attrs["num_samples"] = steps
            demo["actions"] = rng.uniform(-1, 1, (steps, 2))
            demo["rewards"] = np.full(steps, float(number))
            demo["dones"] = np.array(done)
            demo["states"] = np.zeros((steps, 9))
            for name, width in (("eef_pos", 3), ("gripper", 2)):
                seen = rng.normal(size=(steps + 1, width))
                demo[f"obs/{name}"], demo[f"next_obs/{name}"] = seen[:-1], seen[1:]
            demo["obs/image"] = demo["next_obs/image"] = np.zeros((steps, 4, 4, 3), np.uint8)
        file["mask/train"] = np.array(["demo_0", "demo_10"], dtype="S")
        file["mask/valid"] = np.array(["demo_1"], dtype="S")
    return path


def test_robomimic(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "x.hdf5", [[0, 0, 1], [0, 0, 0, 0], *[[0, 1]] * 9])
    recording = open_recording(path)
    assert recording.layout == "robomimic"
    episodes = list(recording.episodes())
    assert [episode.rewards[0] for episode in episodes] == list(range(11))  # demo_10 comes after demo_9
    with h5py.File(path) as file:
        demo = file["data/demo_0"]
        assert np.array_equal(episodes[0].observations["eef_pos"][:-1], demo["obs/eef_pos"])
        assert np.array_equal(episodes[0].observations["eef_pos"][1:], demo["next_obs/eef_pos"])
        assert np.array_equal(episodes[0].actions, demo["actions"])
        both = np.concatenate([demo["obs/gripper"], demo["obs/eef_pos"]], 1)
    assert [episode.terminated for episode in episodes[:3]] == [True, False, True]
    assert "Its lists of demonstrations (mask): train, valid" in recording.notes[0]
    joined = open_recording(path, columns="obs=gripper,eef_*,obs.camera=image,demos=train")
    assert joined.steps == 5
    first = next(joined.episodes())
    assert np.array_equal(first.observations["state"][:-1], both)
    assert first.observations["camera"].shape == (4, 4, 4, 3)
    for words, told in (
        ("obs=grip", "no observation 'grip'. Did you mean 'gripper'?"),
        ("demos=test", "no list 'test'"),
        ("action=x", "no such role 'action'"),
    ):
        with pytest.raises(DataError) as caught:
            open_recording(path, columns=words)
        assert told in str(caught.value)


def test_robomimic_dones_in_the_middle_and_gaps(tmp_path: Path) -> None:
    recording = open_recording(write_robomimic(tmp_path / "x.hdf5", [[0, 1, 1, 0]]))
    assert [(len(piece), piece.terminated, piece.truncated) for piece in recording.episodes()] == [
        (2, True, False),
        (1, True, False),
        (1, False, True),
    ]
    assert "2 dones before the last step" in " ".join(recording.notes)
    with h5py.File(write_robomimic(tmp_path / "y.hdf5", [[0, 1]]), "a") as file:
        del file["data/demo_0/next_obs"], file["data/demo_0/rewards"]
    bare = open_recording(tmp_path / "y.hdf5")
    assert not bare.has_rewards
    assert not any(piece.final_known for piece in bare.episodes())
    with h5py.File(write_robomimic(tmp_path / "z.hdf5", [[0, 1]]), "a") as file:
        del file["data/demo_0/obs"]
    with pytest.raises(DataError, match="dataset_states_to_obs"):
        open_recording(tmp_path / "z.hdf5")


def write_lerobot(path: Path, version: str, rewards: bool = True) -> Path:
    """Two episodes of 3 and 2 frames; version 2 has a file for each, version 3 one for both."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "observation.state": list(rng.normal(size=(5, 3)).astype(np.float32)),
        "observation.environment_state": list(rng.normal(size=(5, 2)).astype(np.float32)),
        "action": list(rng.uniform(-1, 1, (5, 2)).astype(np.float32)),
        "episode_index": np.array([0, 0, 0, 1, 1]),
        "frame_index": np.array([0, 1, 2, 0, 1]),
        "timestamp": np.arange(5) / 10,
        "next.done": np.array([False, False, True, False, True]),
        "index": np.arange(5),
        "task_index": np.zeros(5, int),
        **({"next.reward": np.arange(5.0)} if rewards else {}),
    }
    table = pa.table(columns)
    chunk = path / "data" / "chunk-000"
    chunk.mkdir(parents=True)
    if version.startswith("v2"):
        pq.write_table(table.slice(0, 3), chunk / "episode_000000.parquet")
        pq.write_table(table.slice(3), chunk / "episode_000001.parquet")
    else:
        pq.write_table(table, chunk / "file-000.parquet")
    features = {name: {"dtype": "float32", "shape": [1]} for name in columns}
    features["observation.images.top"] = {"dtype": "video", "shape": [3, 96, 96]}
    (path / "meta").mkdir()
    info = {"codebase_version": version, "total_frames": 5, "total_episodes": 2, "fps": 10, "features": features}
    (path / "meta" / "info.json").write_text(json.dumps(info))
    return path


def test_lerobot(tmp_path: Path) -> None:
    prints = set()
    for version in ("v2.0", "v2.1", "v3.0"):
        recording = open_recording(write_lerobot(tmp_path / version, version))
        assert (recording.layout, recording.steps) == (f"lerobot {version}", 5)
        assert "Images and videos are not decoded: observation.images.top." in recording.notes
        dataset = load_dataset(tmp_path / version, action_space=BOX)
        assert {name: group.shape for name, group in dataset.spec.observation.items()} == {
            "state": (3,),
            "environment_state": (2,),
        }
        assert dataset.rewards.tolist() == [0, 1, 2, 3, 4]
        assert dataset.index.lengths.tolist() == [3, 2]
        assert not dataset.index.terminated.any()
        prints.add(dataset.fingerprint)
    assert len(prints) == 1
    table = pq.read_table(tmp_path / "v3.0" / "data" / "chunk-000" / "file-000.parquet")
    assert dataset.observations["state"][:3].tolist() == table["observation.state"].to_pylist()[:3]
    assert not open_recording(write_lerobot(tmp_path / "bare", "v2.1", rewards=False)).has_rewards
    chosen = load_dataset(
        tmp_path / "v2.1", columns="obs=observation.state[0:2],action=action,episode=episode_index", action_space=BOX
    )
    assert chosen.spec.observation["state"].shape == (2,)
    card = tmp_path / "v2.1" / "meta" / "info.json"
    for changes, told in (
        ({"codebase_version": "v1.6"}, "unknown version of LeRobot: got 'v1.6'"),
        ({"total_frames": 6}, "another number of frames than meta/info.json tells: got 5, expected 6"),
    ):
        info = json.loads(card.read_text())
        card.write_text(json.dumps({**info, **changes}))
        with pytest.raises(DataError, match=told):
            open_recording(tmp_path / "v2.1")
        card.write_text(json.dumps(info))


def buffer(steps: int = 5, envs: int = 3) -> dict[str, Any]:
    """Arrays of a Stable-Baselines3 `ReplayBuffer`: in stream k an episode ends after k + 1 steps."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(steps, envs, 4)).astype(np.float32)
    following = np.concatenate([observations[1:], rng.normal(size=(1, envs, 4))]).astype(np.float32)
    dones = np.zeros((steps, envs), np.float32)
    timeouts = np.zeros((steps, envs), np.float32)
    for env in range(envs):
        dones[env, env] = 1
        timeouts[env, env] = env % 2
        following[env, env] = 100 + env
    return {
        "observations": observations,
        "next_observations": following,
        "actions": rng.uniform(-1, 1, (steps, envs, 2)).astype(np.float32),
        "rewards": rng.normal(size=(steps, envs)).astype(np.float32),
        "dones": dones,
        "timeouts": timeouts,
    }


def test_stable_baselines_3(tmp_path: Path) -> None:
    arrays = buffer()
    np.savez(tmp_path / "buffer.npz", **arrays)
    dataset = load_dataset(tmp_path / "buffer.npz", action_space=BOX)
    assert load_dataset(arrays, action_space=BOX).fingerprint == dataset.fingerprint
    assert dataset.index.lengths.tolist() == [1, 4, 2, 3, 3, 2]
    assert dataset.index.terminated.tolist() == [True, False, False, False, True, False]
    assert dataset.index.truncated.tolist()[2] is True
    assert dataset.index.final_known.all()
    import torch

    rows = dataset.rows(torch.arange(15), Demand())
    for row, (env, step) in enumerate((env, step) for env in range(3) for step in range(5)):
        assert np.array_equal(rows.obs["state"][row], arrays["observations"][step, env])
        assert np.array_equal(rows.next_obs["state"][row], arrays["next_observations"][step, env])
        assert np.array_equal(rows.action[row], arrays["actions"][step, env])
        assert rows.reward[row] == arrays["rewards"][step, env]
    assert "3 streams of 5 steps" in open_recording(tmp_path / "buffer.npz").notes[0]
    for name in ("rewards", "dones", "next_observations"):  # once read as if it were not there: rewards that are all 0
        with pytest.raises(DataError, match=rf"array '{name}' has the wrong shape: got \[4, 3.*expected \[5, 3, …\]"):
            load_dataset({**arrays, name: arrays[name][:-1]}, action_space=BOX)
    with pytest.raises(DataError, match="has no rows"):
        load_dataset({name: values[:0] for name, values in arrays.items()}, action_space=BOX)


def test_tfrecords_are_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord-00000-of-00001").write_bytes(b"12345678")
    (tmp_path / "dataset_info.json").write_text("{}")
    for origin in (tmp_path, tmp_path / "x.tfrecord-00000-of-00001"):
        with pytest.raises(DataError, match=r"is not read. Nothing small reads it: load it where TensorFlow"):
            open_recording(origin)


def test_a_misspelt_reward_in_a_file_is_an_error(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "observations": np.ones((2, 1)),
        "actions": np.ones((2, 2)),
        "terminals": np.array([0, 1]),
    }
    np.savez(tmp_path / "x.npz", **columns, reward_=np.ones(2), forward=np.ones(2))
    with pytest.raises(
        DataError, match=r"has no rewards, but a column reward_. If these are the rewards, say columns="
    ):
        open_recording(tmp_path / "x.npz")
    assert open_recording(tmp_path / "x.npz", columns="reward=reward_").has_rewards
    assert not open_recording(tmp_path / "x.npz", columns="reward=").has_rewards
