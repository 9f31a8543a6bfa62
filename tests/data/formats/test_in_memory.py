"""Experience in memory: dicts of arrays, DataFrames, datasets; and what is said when it does not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.core.errors import DataError
from understudy.core.spec import Box, Discrete
from understudy.data.formats.in_memory import open_held
from understudy.run.loading import load_dataset
from worlds import random_dataset

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def flat(**changes: Any) -> dict[str, Any]:
    """Two episodes of three steps, the first of which terminates."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(6, 3)).astype(np.float32)
    columns = {
        "observations": observations,
        "next_observations": np.concatenate([observations[1:], [[7.0, 8.0, 9.0]]]).astype(np.float32),
        "actions": rng.uniform(-1, 1, size=(6, 2)).astype(np.float32),
        "rewards": np.arange(6.0, dtype=np.float32),
        "terminations": np.array([0, 0, 1, 0, 0, 0]),
        "truncations": np.array([0, 0, 0, 0, 0, 1]),
    }
    columns["next_observations"][2] = [4.0, 5.0, 6.0]
    return {name: value for name, value in {**columns, **changes}.items() if value is not None}


def frame(columns: dict[str, Any]) -> pd.DataFrame:
    wide: dict[str, Any] = {}
    for name, values in columns.items():
        parts = np.asarray(values).reshape(6, -1)
        wide |= {f"{name}_{i}" if parts.shape[1] > 1 else name: parts[:, i] for i in range(parts.shape[1])}
    return pd.DataFrame(wide)


def test_a_dict_of_arrays_a_frame_and_a_file_are_the_same_dataset(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **flat())
    expected = load_dataset(tmp_path / "x.npz", action_space=BOX)
    assert expected.index.lengths.tolist() == [3, 3]
    assert expected.observations["state"][3].tolist() == [4, 5, 6]
    same = [
        load_dataset(flat(), action_space=BOX),
        load_dataset(frame(flat()), action_space=BOX),
        load_dataset(flat(), action_space=BOX, columns={"obs": "observations", "action": ["actions"]}),
        load_dataset(expected),
        load_dataset(expected, action_space=BOX),
        load_dataset(list(expected.recording().episodes()), action_space=BOX),
    ]
    assert {dataset.fingerprint for dataset in same} == {expected.fingerprint}
    assert same[3] is expected


def test_a_frame_with_a_map_of_columns() -> None:
    table = frame(flat(terminations=None, truncations=None, next_observations=None))
    table["day"] = ["mo", "mo", "mo", "tu", "tu", "tu"]
    table["note"] = "anything"
    words = {"obs.head": "observations_0", "obs.tail": ["observations_1", "observations_2"], "action": "actions_*"}
    dataset = load_dataset(table, columns={**words, "reward": "rewards", "episode": "day"}, action_space=BOX)
    assert {name: group.shape for name, group in dataset.spec.observation.items()} == {"head": (1,), "tail": (2,)}
    assert dataset.index.lengths.tolist() == [3, 3]
    assert not dataset.index.final_known.any()
    assert dataset.observations["tail"][0].tolist() == flat()["observations"][0, 1:].tolist()


def test_a_mask_among_the_observations_is_one_as_environments_give_it() -> None:
    rng = np.random.default_rng(0)
    seen, mask = rng.normal(size=(5, 2, 3)), np.ones((5, 2, 4))
    mask[:, :, 3] = 0
    buffer: dict[str, Any] = {
        "observations": {"state": seen, "action_mask": mask},
        "next_observations": {"state": np.roll(seen, -1, 0), "action_mask": mask},
        "actions": rng.integers(3, size=(5, 2, 1)),
        "rewards": np.ones((5, 2)),
        "dones": np.zeros((5, 2)),
    }
    dataset = load_dataset(buffer)
    assert repr(dataset.spec) == "Spec(state [3] float32 → Discrete(count=4), masked)"
    assert dataset.mask is not None
    assert not dataset.mask[:, 3].any()
    assert dataset.mask[:, :3].all()


def test_wide_arrays_are_cut_into_groups() -> None:
    dataset = load_dataset(
        flat(),
        columns="obs.a=observations[0:2],obs.b=observations[2],next_obs.a=next_observations[:2],"
        "next_obs.b=next_observations[2:]",
        action_space=BOX,
    )
    assert dataset.observations["a"][:3].tolist() == flat()["observations"][:3, :2].tolist()
    assert dataset.observations["b"][3].tolist() == [6.0]


def test_one_episode_with_its_final_observation() -> None:
    whole = {"observations": [[0.0], [1.0], [2.0]], "actions": [0, 1], "rewards": [1.0, 2.0], "terminated": True}
    dataset = load_dataset(whole)
    assert dataset.spec.action == Discrete(2)
    assert (dataset.steps, dataset.index.terminated.tolist()) == (2, [True])


def test_a_dataset_knows_whether_it_has_rewards(tmp_path: Path) -> None:
    rewarded, bare = (load_dataset(data, action_space=BOX) for data in (flat(), flat(rewards=None)))
    assert (rewarded.has_rewards, bare.has_rewards) == (True, False)
    us.write_store(bare, tmp_path / "store")
    reopened = load_dataset(tmp_path / "store")
    assert not reopened.has_rewards
    from understudy.tools.dataset.conversion import convert_file

    for target in ("again", "x.npz", "x.hdf5"):
        convert_file(str(tmp_path / "store"), tmp_path / target)
        again = load_dataset(tmp_path / target)
        assert not again.has_rewards, target
        assert again.fingerprint == bare.fingerprint, target
    assert not load_dataset(reopened, transforms=us.Transforms(max_episodes=1)).has_rewards


@pytest.mark.parametrize(
    ("data", "columns", "told"),
    [
        (flat(rewards=None, reward_=np.zeros(6)), "", "no column is called 'reward_'. Did you mean 'reward'?"),
        (flat(goal=np.zeros(6)), "", "no column is called 'goal'"),
        (flat(actions=None), "", "has no array 'actions'"),
        (flat(actions=["a"] * 6), "", "actions: not numeric"),
        (flat(rewards=np.zeros(5)), "", "array 'rewards' has the wrong shape: got (5,), expected (6,)"),
        (flat(terminations=None, truncations=None, next_observations=None), "", "has no episode boundary"),
        ({3: [1]}, "", "not the name of a column: got 3"),
        (flat(), "obz=observations", "no such role 'obz'. Did you mean 'obs'?"),
        (flat(), "obs=observation", "no column 'observation'. Did you mean 'observations'?"),
        (flat(), "observations", "no role before the first column"),
        (flat(), "obs=observations,obs=observations", "'obs' is said twice"),
        (flat(), "obs=observations,state=observations", "'state' is said twice"),
        (flat(), "obs.a/b=observations", "not a usable name"),
        (flat(), "obs=observations,observations", "takes a column twice"),
        (flat(), "reward=rewards,terminations", "is one number a row"),
        (flat(), "obs=observations[5]", "no such part 'observations[5:6]': expected 0 to 2"),
        (flat(), "obs=observations[0:9]", "no such part"),
        (flat(), {"obs": 3}, "not a map of columns"),
        (flat(), "action.a=actions", "no such role 'action.a'"),
        (flat(), "obs=", "no column is known to be the observations"),
        (random_dataset(), "obs=x", "a Dataset has no columns to be named"),
        (3, "", "not something that holds experience: got int"),
        (None, "", "not something that holds experience"),
        (b"abc", "", "not something that holds experience"),
        (pd.DataFrame({"obs": []}), "", "has no rows"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "", "two columns have the same name: got 'a'"),
        (pd.DataFrame({"obs": ["x"], "action": [0]}), "", "column 'obs': not numeric"),
        (pd.DataFrame({"temp": [1.0], "valve": [0]}), "", "no column is known to be the observations: got temp, valve"),
    ],
)
def test_each_mistake_has_its_sentence(data: Any, columns: Any, told: str) -> None:
    with pytest.raises(DataError) as caught:
        list(open_held(data, columns=columns).episodes())
    assert told in str(caught.value)


def test_guesses_are_said_and_can_be_denied() -> None:
    recording = open_held(frame(flat()))
    assert recording.notes[0].startswith("Read off the columns' names: observations = observations_0, observations_1")
    assert recording.has_rewards
    assert not open_held(frame(flat()), columns="reward=").has_rewards
