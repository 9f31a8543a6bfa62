"""PyBullet's worlds: described, repeatable to the bit, and a gait to learn from. Needs the `bullet` extra."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import understudy as us
from understudy.envs.builtin.bullet import bound
from understudy.envs.builtin.controllers import CONTROLLERS, find_controller
from understudy.envs.facts import time_limit
from understudy.envs.gym import Env, env_spec, make_env
from understudy.run.loading import resolve_dataset
from understudy.sources.playing.collect import play

pytest.importorskip(
    "pybullet_envs_gymnasium", reason="PyBullet is not installed; to run these tests: pip install '.[bullet]'"
)
CHEETAH = "HalfCheetahBulletEnv-v0"
SIZES = {CHEETAH: (26, 6), "HopperBulletEnv-v0": (15, 3), "Walker2DBulletEnv-v0": (22, 6), "AntBulletEnv-v0": (28, 8)}
Walk = tuple[NDArray[np.float32], NDArray[np.float64]]


def walk(env: Env, seed: int, steps: int = 60) -> Walk:
    """Observations and rewards of random actions that the seed decides, up to a fall."""
    rng = np.random.default_rng(seed)
    assert env.action_space.shape is not None
    seen, rewards = [env.reset(seed=seed)[0]], []
    for _ in range(steps):
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        raw, reward, terminated, _, _ = env.step(action)
        seen.append(raw)
        rewards.append(float(reward))
        if terminated:
            break
    return np.stack(seen), np.array(rewards)


@pytest.fixture
def cheetah() -> Iterator[Env]:
    env = make_env(CHEETAH)
    yield env
    env.close()


@pytest.mark.parametrize("env_id", SIZES)
def test_worlds_are_described(env_id: str) -> None:
    env = make_env(env_id)
    spec = env_spec(env, env_id)
    env.close()
    assert (spec.observation["state"].shape, spec.box.size) == ((SIZES[env_id][0],), SIZES[env_id][1])
    assert spec.box.low == (-1.0,) * SIZES[env_id][1]
    assert time_limit(env_id) == 1000


@pytest.mark.parametrize("env_id", SIZES)
def test_a_seed_decides_an_episode(env_id: str) -> None:
    """In a used world and in another, whatever was played before."""
    first, second = make_env(env_id), make_env(env_id)
    before = walk(first, 1)
    walk(first, 2)
    for again in (walk(first, 1), walk(second, 1)):
        np.testing.assert_array_equal(again[0], before[0])
        np.testing.assert_array_equal(again[1], before[1])
    other = walk(first, 3)
    assert not np.array_equal(other[0][:5], before[0][:5])
    first.close()
    second.close()


def test_only_the_first_reward_of_an_unsettled_world_is_odd(cheetah: Env) -> None:
    """Why `make_env` resets; if this fails, pybullet-envs-gymnasium has mended it and that can go."""
    unsettled = gymnasium.make(CHEETAH)
    fresh, used = walk(unsettled, 1), walk(unsettled, 1)
    unsettled.close()
    np.testing.assert_array_equal(fresh[0], used[0])
    assert np.flatnonzero(fresh[1] != used[1]).tolist() == [0]
    assert abs(fresh[1][0] - used[1][0]) > 0.01
    np.testing.assert_array_equal(walk(cheetah, 1)[1], used[1])


def test_a_recipe_is_the_same_from_any_episode_on() -> None:
    recipe = us.Recipe.parse(
        {"env": CHEETAH, "episodes": 2, "behaviours": [{"policy": "random"}, {"policy": "scripted", "noise": 0.3}]}
    )
    whole = list(play(recipe, (), lambda done, who: None))
    (last,) = play(recipe, (), lambda done, who: None, first=1)
    np.testing.assert_array_equal(whole[1].observations["state"], last.observations["state"])
    np.testing.assert_array_equal(whole[1].actions, last.actions)
    np.testing.assert_array_equal(whole[1].rewards, last.rewards)
    assert [len(episode) for episode in whole] == [1000, 1000]
    assert not any(episode.terminated for episode in whole)
    assert all(episode.truncated for episode in whole)
    assert float(whole[0].rewards.sum()) < -900


def gait_return(env: Env, skill: float, steps: int = 400) -> float:
    raw, _ = env.reset(seed=5)
    total = 0.0
    for _ in range(steps):
        raw, reward, _, _, _ = env.step(np.asarray(bound({"state": raw}, skill), np.float32))
        total += float(reward)
    return total


def test_skill_pays(cheetah: Env) -> None:
    assert find_controller(CHEETAH) is bound
    helpless, weak, best = (gait_return(cheetah, skill) for skill in (0.0, 0.4, 1.0))
    assert max(helpless, weak) < -200
    assert best > 150


def test_the_gait_goes_forward(cheetah: Env) -> None:
    gait_return(cheetah, 1.0)
    unwrapped: Any = cheetah.unwrapped
    assert unwrapped.robot.body_real_xyz[0] > 1.5


def test_the_config_logs_evaluates_and_draws(tmp_path: Path) -> None:
    run = us.train(
        us.load_config(
            "ciql/halfcheetah-bullet",
            [
                *("data.recipe.episodes=2", "steps=4", "log_every=2", "eval_every=4", "eval_episodes=1"),
                *("algo.actor.hidden=[8]", "algo.critic.hidden=[8]", "tensorboard=false", f"out={tmp_path / 'run'}"),
            ],
        )
    )
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in lines] == [2, 4]
    assert {"loss/value", "loss/critic", "loss/actor", "penalty/gap"} <= lines[0].keys()
    (evaluation,) = [json.loads(line) for line in (run.path / "eval.jsonl").read_text().splitlines()]
    assert evaluation["lengths"] == [1000]
    assert evaluation["eval/score"] == us.normalized_score("bullet-halfcheetah-medium-v0", evaluation["returns"][0])
    assert (run.path / "plots" / "eval_returns.png").read_bytes().startswith(b"\x89PNG")


def test_the_config_reads_a_file_of_d4rl_pybullet(tmp_path: Path) -> None:
    """Rewards one row late, a row without an action at the end, time limits stored as terminals."""
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (2, 1001, 6)).astype(np.float32)
    rewards = rng.standard_normal((2, 1001)).astype(np.float32)
    terminals = np.zeros((2, 1001), np.float32)
    actions[:, -1], rewards[:, 0], terminals[:, -1] = 0.0, 0.0, 1.0
    with h5py.File(tmp_path / "medium.hdf5", "w") as file:
        file["observations"] = rng.standard_normal((2002, 26)).astype(np.float32)
        file["actions"], file["rewards"] = actions.reshape(-1, 6), rewards.reshape(-1, 1)
        file["terminals"] = terminals.reshape(-1, 1)
    words = [f"data.path={tmp_path / 'medium.hdf5'}", "data.recipe=null"]
    config = us.load_config("ciql/halfcheetah-bullet", words)
    dataset = resolve_dataset(config.logged, config.world.id).train
    assert (dataset.episodes, dataset.steps) == (2, 2000)
    ends = [dataset.episode(number) for number in range(2)]
    assert [(end.terminated, end.truncated) for end in ends] == [(False, True)] * 2
    np.testing.assert_allclose(dataset.returns(), rewards[:, 1:].sum(1), rtol=1e-4, atol=1e-3)


def test_there_is_a_player_for_the_cheetah_alone() -> None:
    assert [env_id for env_id in CONTROLLERS if "Bullet" in env_id] == [CHEETAH]
