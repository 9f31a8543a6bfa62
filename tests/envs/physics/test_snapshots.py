"""Simulators that are put back where they stood do the same to the bit, or refuse."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError
from understudy.envs.gym import Env, make_env
from understudy.envs.physics.snapshots import restore_snapshot, snapshot
from understudy.envs.vector.local import LocalVectorEnv
from vector_cases import BATTLE, CARTPOLE, LIMITS, PENDULUM, action_table

CLASSIC = [CARTPOLE, PENDULUM, "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
BODIES = ["HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Reacher", "Pusher", "Ant", "Humanoid", "HumanoidStandup"]
SMALL = ["PendulumMasked", "CartPoleMasked", "CartPolePixels", "WindyPoint", "WindyThrusters", "Zones", "DeepSea"]
SMALL += ["Circle"]
POLES = ["InvertedPendulum", "InvertedDoublePendulum"]


def follow(world: LocalVectorEnv, start: int, steps: int) -> list[Obs]:
    table = action_table(world.spec.action, world.count, start + steps)
    told = []
    for k in range(start, start + steps):
        step = world.step(table[:, k])
        told.append({"reward": step.reward.clone(), **{name: part.clone() for name, part in step.final_obs.items()}})
    return told


def check_goes_on(name: str, steps: int, *, count: int = 2, first: int = 6, **options: Any) -> None:
    world, other = LocalVectorEnv(name, count, **options), LocalVectorEnv(name, count, **options)
    world.reset(3)
    follow(world, 0, first)
    saved = world.save()
    assert saved
    ahead = follow(world, first, steps)
    for again in (world, other):
        obs = again.load(saved)
        assert all(torch.equal(obs[group], saved[f"obs.{group}"]) for group in obs)
        for one, two in zip(ahead, follow(again, first, steps), strict=True):
            assert all(torch.equal(one[part], two[part]) for part in one)


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control_goes_on_to_the_bit(name: str) -> None:
    check_goes_on(name, 40)


@pytest.mark.parametrize("name", BODIES + POLES)
def test_mujoco_goes_on_to_the_bit(name: str) -> None:
    pytest.importorskip("mujoco")
    short = f"UnderstudyTest{name}-v0"
    if short not in gymnasium.registry:
        gymnasium.register(short, gymnasium.spec(f"{name}-v5").entry_point, max_episode_steps=12)
    check_goes_on(short, 16)


@pytest.mark.parametrize(
    "name",
    [
        "PendulumMasked",
        "CartPoleMasked",
        "CartPolePixels",
        "WindyPoint",
        "WindyThrusters",
        "Zones",
        "DeepSea",
        "Circle",
    ],
)
def test_small_worlds_go_on_to_the_bit(name: str) -> None:
    """Noise, random winds of the episodes that follow, and the look before the first."""
    check_goes_on(f"Understudy{name}-v0", 130)


@pytest.mark.parametrize("name", [BATTLE, "UnderstudyBattleScripted-v0"])
def test_a_battle_goes_on_to_the_bit(name: str) -> None:
    """From every moment of some battles: teams, hit points, uses left, who was seen, and chance."""
    env, other = make_env(name), make_env(name)
    other.reset(seed=99)
    chance = np.random.default_rng(0)
    for seed in range(3):
        seen, _ = env.reset(seed=seed)
        over = False
        while not over:
            restore_snapshot(other, snapshot(env))
            action = np.int64(chance.choice(np.flatnonzero(seen["action_mask"])))
            (seen, reward, over, *_), (also, same, ended, *_) = env.step(action), other.step(action)
            assert (reward, over) == (same, ended)
            assert all(np.array_equal(seen[group], also[group]) for group in seen)


class Counter(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that remembers, and tells it."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        raw, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        return raw, float(reward) + self.steps, terminated, truncated, info

    def tell(self) -> dict[str, NDArray[Any]]:
        return {"steps": np.array(self.steps)}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        self.steps = int(told["steps"])


def test_wrappers_that_tell_are_put_back_each_on_its_own() -> None:
    check_goes_on(PENDULUM, 20, make=lambda name: Counter(gymnasium.wrappers.TimeLimit(Counter(make_env(name)), 5)))


def test_shortened_first_episodes_end_where_they_would_have() -> None:
    check_goes_on(PENDULUM, 2 * LIMITS[PENDULUM], count=6, first=2, stagger_episodes=True)


def test_states_keep_their_precision() -> None:
    """A float32 state steps in float32: as float64 its next step would be rounded otherwise."""
    env, other = make_env("MountainCarContinuous-v0"), make_env("MountainCarContinuous-v0")
    env.reset(seed=0)
    other.reset(seed=1)
    found = []
    for _ in range(2):
        restore_snapshot(other, snapshot(env))
        found.append(str(env.get_wrapper_attr("state").dtype))
        assert str(other.get_wrapper_attr("state").dtype) == found[-1]
        env.step(np.ones(1, np.float32))
    assert found == ["float64", "float32"], "the case is no longer one"


def test_what_cannot_be_told_is_not_saved() -> None:
    wrapped = LocalVectorEnv(PENDULUM, 1, make=lambda name: gymnasium.wrappers.RecordEpisodeStatistics(make_env(name)))
    wrapped.reset(0)
    assert wrapped.save() == {}, "a wrapper nobody knows may remember anything"


def test_another_world_is_refused() -> None:
    two, three = LocalVectorEnv(PENDULUM, 2), LocalVectorEnv(PENDULUM, 3)
    two.reset(0)
    with pytest.raises(CheckpointError, match="cannot be put"):
        three.load(two.save())
