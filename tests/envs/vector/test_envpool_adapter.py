"""EnvPool's environments keep the promise of vector worlds; where it is not installed, it is named."""

import importlib.util

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.envs.gym import make_env
from understudy.envs.vector.contract import Step
from understudy.envs.vector.envpool_adapter import EnvPoolVectorEnv

HERE = importlib.util.find_spec("envpool") is not None
needs_envpool = pytest.mark.skipif(not HERE, reason="envpool is not installed")
COUNT = 4


@pytest.mark.skipif(HERE, reason="envpool is installed")
def test_without_envpool_it_says_how_to_install_it() -> None:
    with pytest.raises(MissingPackageError, match=r"needs envpool .*pip install 'understudy-rl\[envpool\]'"):
        EnvPoolVectorEnv("CartPole-v1", 2)


def tour(world: EnvPoolVectorEnv, seed: int, steps: int) -> tuple[list[Tensor], list[Tensor], list[Step]]:
    """Observations before, actions and steps."""
    rng = torch.Generator().manual_seed(0)
    seen, acted, told = [world.reset(seed)["state"].clone()], [], []
    for _ in range(steps):
        acted.append(torch.randint(0, 2, (COUNT,), generator=rng))
        told.append(world.step(acted[-1]))
        seen.append(told[-1].obs["state"].clone())
    return seen, acted, told


@needs_envpool
def test_final_observations_follow_from_the_action_and_dummies_are_marked() -> None:
    """Every valid step is repeated by the equations of Gymnasium's pole."""
    world = EnvPoolVectorEnv("CartPole-v1", COUNT, threads=1, settings={"max_episode_steps": 12})
    seen, acted, told = tour(world, 0, 40)
    pole = make_env("CartPole-v1").unwrapped
    before, ends = torch.zeros(COUNT, dtype=torch.bool), set()
    for obs, action, step in zip(seen, acted, told, strict=False):
        assert torch.equal(~step.valid, before)
        assert not step.reward[~step.valid].any()
        for number in step.valid.nonzero()[:, 0].tolist():
            pole.reset()
            pole.state = obs[number].double().numpy()  # type: ignore[attr-defined]
            after, _, over, _, _ = pole.step(int(action[number]))
            assert np.allclose(after, step.final_obs["state"][number], atol=1e-5)
            assert bool(step.terminated[number]) <= over
        before = step.terminated | step.truncated
        ends |= {(bool(one), bool(two)) for one, two in zip(step.terminated, step.truncated, strict=True)}
    assert {(True, False), (False, True)} <= ends
    world.close()


@needs_envpool
def test_a_seed_is_repeatable() -> None:
    world = EnvPoolVectorEnv("CartPole-v1", COUNT, threads=1)
    first, again, other = (torch.stack(tour(world, seed, 30)[0]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    world.close()


@needs_envpool
def test_a_quadruped_has_groups_and_reward_terms() -> None:
    world = EnvPoolVectorEnv("Go1JoystickFlatTerrain-v1", 2, threads=1, settings={"max_episode_steps": 5})
    assert {name: group.shape for name, group in world.spec.observation.items()} == {
        "state": (48,),
        "privileged_state": (123,),
    }
    obs = world.reset(0)
    assert obs["state"].dtype == torch.float32
    for _ in range(5):
        step = world.step(torch.zeros(2, 12))
    assert step.truncated.all()
    assert "reward_tracking_lin_vel" in step.extras
    assert step.extras["reward_torques"].shape == (2,)
    assert not world.step(torch.zeros(2, 12)).valid.any()
    world.close()


@needs_envpool
def test_wrong_words_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"EnvPool has no environment 'CartPol-v1'\. Did you mean 'CartPole-v1'"):
        EnvPoolVectorEnv("CartPol-v1", 2)
    with pytest.raises(ConfigError, match="EnvPool cannot make 'CartPole-v1'"):
        EnvPoolVectorEnv("CartPole-v1", 2, settings={"gravity_of_mars": 3})
    with pytest.raises(RunError, match="before it was reset"):
        EnvPoolVectorEnv("CartPole-v1", 2).step(torch.zeros(2, dtype=torch.int64))
