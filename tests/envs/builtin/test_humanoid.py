"""The humanoid: a skeleton of the clips, groups that are a motion's channels, servos that stand, states to begin in."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.motions import MotionSettings, load_motions
from understudy.envs.builtin.humanoid import STANDING
from understudy.envs.facts import can_terminate, control_facts
from understudy.envs.gym import make_env
from understudy.envs.physics.snapshots import restore_snapshot, snapshot
from worlds import real_data

mujoco: Any = pytest.importorskip("mujoco")
NAME = "UnderstudyHumanoid-v0"
DEEPLY = 0.04
"""How far feet of the clips reach into the floor, m."""


def clip_states(clip: str) -> tuple[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
    """States of a clip to begin in, and what its motion tells of the same frames in channels of the environment's
    names."""
    path = str(real_data(f"motions/{clip}.npz"))
    motions = load_motions(MotionSettings(path=path, step=1 / 30, stride=2, velocities="differences"))
    env: Any = make_env(NAME).unwrapped
    times = torch.arange(int(motions.durations[0]), dtype=torch.float64)
    found = []
    for names in (tuple(env.reference_channels), tuple(env.observation_space.spaces)):
        at = motions.at(names, torch.zeros(len(times), dtype=torch.int64), times)
        assert all(motions.channels[name] == env.reference_channels[name] for name in names if "joint" in name)
        found.append([{name: values[k].numpy() for name, values in at.items()} for k in range(len(times))])
    return found[0], found[1]


@pytest.mark.parametrize("clip", ["humanoid_walk", "humanoid_run"])
def test_its_skeleton_and_its_groups_are_those_of_the_clips(clip: str) -> None:
    """Forward kinematics puts every body where the clip has it, to a millimetre; only soles are lifted to the floor."""
    env: Any = make_env(NAME).unwrapped
    env.reset(seed=0)
    for state, told in zip(*clip_states(clip), strict=True):
        seen = env.place(state)
        for name, values in seen.items():
            bound = DEEPLY if name == "root_height" else 1e-3
            np.testing.assert_allclose(values, told[name], atol=bound, err_msg=name)
        assert seen["root_height"][0] >= told["root_height"][0] - 1e-6


@pytest.mark.parametrize(("clip", "speed"), [("humanoid_walk", 1.5), ("humanoid_run", 3.4)])
def test_from_a_frame_of_a_clip_it_goes_on_as_the_clip_does(clip: str, speed: float) -> None:
    """Servos that aim at the frames to come, and velocities that are right: for some steps that is enough."""
    env: Any = make_env(NAME).unwrapped
    env.reset(seed=0)
    states, told = clip_states(clip)
    low, high = env.model.actuator_ctrlrange.T
    default = np.zeros(28)
    for place, name in enumerate(env.reference_channels["joint_positions"]):
        default[place] = STANDING.get(name, 0.0)
    for first in range(4, len(states) - 8, 6):
        env.place(states[first])
        start = env.data.qpos[0]
        for k in range(1, 6):
            away = states[first + k + 1]["joint_positions"] - default
            seen, *_ = env.step(np.where(away > 0, away / (high - default), away / (default - low)))
        error = np.abs(seen["joint_positions"] - told[first + 5]["joint_positions"])
        assert error.mean() < 0.1
        assert (env.data.qpos[0] - start) * 6 == pytest.approx(speed, rel=0.35)


def test_a_person_of_sixty_kilograms_that_servos_hold_up() -> None:
    env = make_env(NAME)
    assert can_terminate(NAME)
    facts = control_facts(NAME)
    assert facts["control_step"] == pytest.approx(1 / 30)
    assert len(set(facts["joint_names"])) == 28
    model = env.unwrapped.model  # type: ignore[attr-defined]
    assert 45 < float(model.body_mass.sum()) < 75
    seen, _ = env.reset(seed=0)
    for _ in range(30):
        seen, reward, terminated, _, info = env.step(np.zeros(28, np.float32))
        assert (reward, terminated) == (0.0, False)
    assert seen["root_height"][0] == pytest.approx(0.83, abs=0.03)
    assert abs(info["x_velocity"]) < 0.5
    assert any(env.step(np.full(28, 0.7, np.float32))[2] for _ in range(60)), "it falls"


def test_actions_reach_both_ends_of_what_servos_may_aim_at() -> None:
    env: Any = make_env(NAME).unwrapped
    env.reset(seed=0)
    low, high = env.model.actuator_ctrlrange.T
    for action, target in ((1.0, high), (-1.0, low), (9.0, high)):
        env.step(np.full(28, action))
        np.testing.assert_allclose(env.data.ctrl, target)
    env.step(np.zeros(28))
    names = [env.model.actuator(number).name for number in range(28)]
    assert env.data.ctrl[names.index("right_elbow")] == pytest.approx(-0.3)
    assert tuple(names) == env.reference_channels["joint_positions"]


def test_bodies_are_shown_where_joints_have_them_and_no_start_is_in_the_floor() -> None:
    env: Any = make_env(NAME).unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(3)
    for _ in range(4):
        seen, *_ = env.step(rng.uniform(-1, 1, 28))
    there = mujoco.MjData(env.model)
    there.qpos[:] = env.data.qpos
    mujoco.mj_kinematics(env.model, there)
    apart = np.linalg.norm(there.xpos[1:] - there.xpos[1], axis=1)
    np.testing.assert_allclose(np.linalg.norm(seen["body_positions_in_root"].reshape(15, 3), axis=1), apart, atol=1e-6)
    state = standing(env)
    for height, expected in ((0.70, 0.8314), (0.8314, 0.8314), (0.95, 0.95)):
        seen = env.place({**state, "root_position": np.array([0.0, 0.0, height])})
        assert seen["root_height"][0] == pytest.approx(expected, abs=2e-3)


def standing(env: Any) -> dict[str, NDArray[Any]]:
    """With straight legs."""
    state = {name: np.zeros(size if isinstance(size, int) else 28) for name, size in env.reference_channels.items()}
    return {**state, "root_rotation": np.array([1.0, 0.0, 0.0, 0.0])}


def test_a_speed_is_commanded_and_rewarded() -> None:
    env = make_env("UnderstudyHumanoidSpeed-v0")
    commands = {float(env.reset(seed=seed)[0]["command"][0]) for seed in range(5)}
    assert len(commands) == 5
    assert all(0 <= command <= 3 for command in commands)
    seen, reward, *_, info = env.step(np.zeros(28))
    assert float(reward) == pytest.approx(np.exp(-2 * (info["x_velocity"] - seen["command"][0]) ** 2), rel=1e-5)


def test_it_goes_on_to_the_bit_and_shows_no_array_twice() -> None:
    env, other = (make_env("UnderstudyHumanoidSpeed-v0") for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=2)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-0.5, 0.5, (25, 28))
    for action in actions[:10]:
        env.step(action)
    kept = snapshot(env)
    shown = [env.step(action)[0] for action in actions[10:]]
    restore_snapshot(other, kept)
    for one, action in zip(shown, actions[10:], strict=True):
        two = other.step(action)[0]
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


def test_a_fallen_state_is_refused() -> None:
    env: Any = make_env(NAME).unwrapped
    env.reset(seed=0)
    state = standing(env)
    env.place({**state, "root_position": np.array([5.0, 0.0, 0.9])})
    lying = {"root_rotation": np.array([1.0, 1.0, 0.0, 0.0]), "root_position": np.array([0.0, 0.0, 0.6])}
    with pytest.raises(DataError, match="has fallen"):
        env.place({**state, **lying})
