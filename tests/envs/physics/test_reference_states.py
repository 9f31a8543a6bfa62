"""Environments that are put into states of motions stand there: by their observations, by joints, or by themselves."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.core.errors import ConfigError
from understudy.envs.builtin.kept_columns import KeptColumns
from understudy.envs.gym import Env, make_env
from understudy.envs.physics.joint_states import (
    JointStates,
    quaternions,
    rates_of,
    rotation_matrix,
    rotation_vectors,
    turning,
)
from understudy.envs.physics.reference_states import find_placement

BALL = """<mujoco><worldbody><body name="base"><freejoint/><geom size="1"/>
<body name="arm"><joint name="hip" type="ball"/><geom size="1"/>
<body name="hand"><joint name="knee" axis="0 1 0"/><geom size="1"/></body></body></body></worldbody></mujoco>"""


def told(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(size)))


def _gently(env: Env) -> Any:
    """Speeds that are cut off in an observation cannot be set."""
    action = env.action_space.sample()
    return 0.2 * action if isinstance(action, np.ndarray) else action


@pytest.mark.parametrize(
    "name", ["HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "Ant-v5", "Pendulum-v1", "CartPole-v1", "Acrobot-v1"]
)
def test_an_observation_is_a_place_to_begin(name: str) -> None:
    """What another environment saw after some steps is seen again, and from there both do the same."""
    if name[0] in "HWA" and name != "Acrobot-v1":
        pytest.importorskip("mujoco")
    env, other = make_env(name), make_env(name)
    env.reset(seed=0)
    other.reset(seed=1)
    env.action_space.seed(2)
    for _ in range(5):
        seen, *_ = env.step(_gently(env))
    placement = find_placement(other, {"state": told(len(seen))}, "here")
    again = placement.place({"state": seen})
    columns = 27 if name == "Ant-v5" else len(seen)
    np.testing.assert_allclose(again[:columns], seen[:columns], atol=1e-6)
    assert again.shape == seen.shape
    action = _gently(env)
    one, two = env.step(action)[0], other.step(action)[0]
    np.testing.assert_allclose(two[:columns], one[:columns], atol=1e-3)


def test_rotation_vectors_and_their_rates_against_small_steps() -> None:
    rng = np.random.default_rng(0)
    vectors, rates = rng.standard_normal((200, 3)) * 0.7, rng.standard_normal((200, 3))
    vectors[0], vectors[1], vectors[2] = 0.0, 1e-7, vectors[2] * 3.0 / np.linalg.norm(vectors[2])
    np.testing.assert_allclose(rotation_vectors(quaternions(vectors)), vectors, atol=1e-12)
    np.testing.assert_allclose(rotation_vectors(-quaternions(vectors)), vectors, atol=1e-12)
    turns = turning(vectors, rates)
    np.testing.assert_allclose(rates_of(vectors, turns), rates, atol=1e-7)
    moment = 1e-6
    for vector, rate, turn in zip(vectors, rates, turns, strict=True):
        before, after = (rotation_matrix(quaternions((vector + sign * moment * rate)[None])[0]) for sign in (-1, 1))
        skew = (before.T @ after - after.T @ before) / (4 * moment)
        np.testing.assert_allclose([skew[2, 1], skew[0, 2], skew[1, 0]], turn, atol=1e-6)


def test_a_free_joint_moves_in_the_world_and_turns_in_its_body() -> None:
    """After one tiny step the root is where its velocity in the world says, and is turned about the world's axis."""
    mujoco: Any = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(BALL)
    model.opt.gravity[:], model.opt.timestep = 0.0, 1e-5
    data, joints = mujoco.MjData(model), JointStates(model)
    assert joints.free
    assert joints.names == ("hip_x", "hip_y", "hip_z", "knee")
    rng = np.random.default_rng(1)
    state = {
        name: rng.standard_normal(3) for name in ("root_position", "root_linear_velocity", "root_angular_velocity")
    }
    state |= {"joint_positions": rng.standard_normal(4), "joint_velocities": rng.standard_normal(4)}
    state["root_rotation"] = quaternions(rng.standard_normal((1, 3)))[0]
    data.qpos[:], data.qvel[:] = joints.write(state)
    positions, velocities = joints.read(data.qpos, data.qvel)
    np.testing.assert_allclose(positions, state["joint_positions"])
    np.testing.assert_allclose(velocities, state["joint_velocities"])
    before = rotation_matrix(data.qpos[3:7])
    mujoco.mj_integratePos(model, data.qpos, data.qvel, 1e-5)
    np.testing.assert_allclose(data.qpos[:3], state["root_position"] + 1e-5 * state["root_linear_velocity"])
    turn = (rotation_matrix(data.qpos[3:7]) @ before.T - np.eye(3)) / 1e-5
    np.testing.assert_allclose([turn[2, 1], turn[0, 2], turn[1, 0]], state["root_angular_velocity"], atol=1e-4)
    expected = state["joint_positions"] + 1e-5 * state["joint_velocities"]
    np.testing.assert_allclose(joints.read(data.qpos, data.qvel)[0], expected, atol=1e-9)


def test_robots_are_put_there_by_the_names_of_their_joints() -> None:
    """Gymnasium's Humanoid is not one whose observations a clip has; its joints are found in whatever order."""
    pytest.importorskip("mujoco")
    env = make_env("Humanoid-v5")
    env.reset(seed=0)
    names = JointStates(env.unwrapped.model).names  # type: ignore[attr-defined]
    clip = {"root_position": told(3), "root_rotation": told(4), "root_linear_velocity": told(3)}
    clip |= {"root_angular_velocity": told(3), "joint_positions": names[::-1], "joint_velocities": names[::-1]}
    state: dict[str, NDArray[Any]] = {name: np.zeros(len(parts)) for name, parts in clip.items()}
    angles = np.linspace(-0.1, 0.1, len(names))
    state |= {"root_position": np.array([3.0, 4.0, 1.3]), "root_rotation": np.array([1.0, 0.0, 0.0, 0.0])}
    state |= {"joint_positions": angles[::-1], "joint_velocities": 2 * angles[::-1]}
    seen = find_placement(env, clip, "here").place(state)
    np.testing.assert_allclose(seen[:5], [1.3, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(seen[5:22], angles)
    np.testing.assert_allclose(seen[28:45], 2 * angles)
    clip["joint_positions"] = ("abdomen_z", *names[2:])
    with pytest.raises(ConfigError, match=r"joint_positions' of the motions lacks 1 \(abdomen_y\)"):
        find_placement(env, clip, "here")


def test_wrappers_that_look_are_looked_through_and_others_are_refused() -> None:
    looking = KeptColumns(make_env("Pendulum-v1"), [0, 1])
    looking.reset(seed=0)
    placement = find_placement(looking, {"state": told(3)}, "here")
    np.testing.assert_allclose(placement.place({"state": np.array([0.6, 0.8, 1.0])}), [0.6, 0.8], atol=1e-6)

    class Repeats(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    env: Env = Repeats(make_env("Pendulum-v1"))
    with pytest.raises(ConfigError, match="would not know of it: Repeats"):
        find_placement(env, {"state": told(3)}, "here")
    with pytest.raises(ConfigError, match="'state' has another size"):
        find_placement(make_env("Pendulum-v1"), {"state": told(2)}, "here")
    with pytest.raises(ConfigError, match=r"PendulumEnv cannot be put.*does not tell its 'state'"):
        find_placement(make_env("Pendulum-v1"), {"joint_positions": told(1)}, "here")
