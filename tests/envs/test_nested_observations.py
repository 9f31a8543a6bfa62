"""Observations that are nested Dicts, as FrankaKitchen's: flattened to named groups, the same as Minari's files."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Group
from understudy.data.episode import COLUMN_NAME
from understudy.data.formats.minari.spaces import read_observation_space
from understudy.envs.gym import env_spec, make_env, observe
from understudy.run.loading import load_dataset


class Shell(gymnasium.Env[Any, Any]):
    def __init__(self, observation: "spaces.Space[Any]") -> None:
        self.observation_space, self.action_space = observation, spaces.Box(-1, 1, (1,))


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-1, 1, shape, np.float64)


NESTED = spaces.Dict(
    {"robot": spaces.Dict({"arm 1": box(2), "more": spaces.Dict({"hand": box(3)})}), "door": spaces.Discrete(2)}
)


def test_names_are_the_keys_that_lead_there() -> None:
    spec = env_spec(Shell(NESTED), "x")
    assert spec.observation == {
        "door": Group((2,), "uint8"),
        "robot_arm_1": Group((2,), "float32"),
        "robot_more_hand": Group((3,), "float32"),
    }
    assert all(COLUMN_NAME.fullmatch(name) for name in spec.observation)
    raw = {"robot": {"arm 1": np.array([0.25, 0.5]), "more": {"hand": np.ones(3)}}, "door": 1}
    seen = observe(raw, spec, "env")
    assert {name: values.tolist() for name, values in seen.items()} == {
        "door": [0, 1],
        "robot_arm_1": [0.25, 0.5],
        "robot_more_hand": [1.0, 1.0, 1.0],
    }
    with pytest.raises(DataError, match="observation group 'robot_more_hand' is missing: got"):
        observe({**raw, "robot": {"arm 1": np.zeros(2)}}, spec, "env")


def test_minaris_files_have_the_same_names() -> None:
    serialization = pytest.importorskip("minari.serialization")
    for space in (NESTED, box(3), spaces.Dict({"a-b": box(1), "c": spaces.Dict({"d.e": box(2)})})):
        written = json.loads(serialization.serialize_space(space))
        assert set(read_observation_space(written, "x")) == set(env_spec(Shell(space), "x").observation)


@pytest.mark.parametrize(
    "parts",
    [
        {"a": spaces.Dict({"b": box(1)}), "a_b": box(1)},
        {"a b": box(1), "a-b": box(1)},
        {"a": spaces.Dict({"b_c": box(1)}), "a_b": spaces.Dict({"c": box(1)})},
    ],
)
def test_two_parts_of_one_name_are_refused(parts: "dict[str, spaces.Space[Any]]") -> None:
    with pytest.raises(ConfigError, match=r"environment 'x': two parts .* same name: got 'a_b(_c)?' twice"):
        env_spec(Shell(spaces.Dict(parts)), "x")


def test_a_part_that_is_no_numbers_is_refused_at_any_depth() -> None:
    with pytest.raises(ConfigError, match="observations not supported"):
        env_spec(Shell(spaces.Dict({"a": spaces.Dict({"b": spaces.Text(3)})})), "x")


def stacked(rows: list[Any]) -> Any:
    """A list of nested dicts as one nested dict of arrays."""
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    return np.array(rows)


@pytest.mark.parametrize(
    ("env_id", "groups"),
    [("FrankaKitchen-v1", 15), ("UnderstudyKitchenSlider-v0", 9), ("UnderstudyKitchenBurner-v0", 9)],
)
def test_a_kitchen_is_played_and_recorded_alike(
    env_id: str, groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Minari writes of it fits the environment, group by group and number by number."""
    pytest.importorskip("gymnasium_robotics")
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = make_env(env_id)
    spec = env_spec(env, env_id)
    assert len(spec.observation) == groups
    assert spec.observation["observation"] == Group((59,), "float32")
    assert spec.observation["desired_goal_light_switch"] == Group((2,), "float32")
    seen, actions = [env.reset(seed=0)[0]], [env.action_space.sample() for _ in range(3)]
    seen += [env.step(action)[0] for action in actions]
    buffer = minari.data_collector.EpisodeBuffer(
        observations=stacked(seen),
        actions=np.array(actions),
        rewards=[0.0] * 3,
        terminations=[False] * 3,
        truncations=[False, False, True],
    )
    minari.create_dataset_from_buffers(
        "kitchen/test-v0", [buffer], observation_space=env.observation_space, action_space=env.action_space
    )
    dataset = load_dataset("kitchen/test-v0")
    assert dataset.spec.fits(spec)
    for name, values in dataset.episode(0).observations.items():
        np.testing.assert_array_equal(values, [observe(raw, spec, "env")[name] for raw in seen])
    env.close()
