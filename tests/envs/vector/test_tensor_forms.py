"""Tensor simulators in every form that rsl_rl has known: the same steps, ages, saved counters, and mistakes told."""

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from understudy.core.errors import CheckpointError, ConfigError, RunError, UnderstudyError
from understudy.core.spec import Box, Spec
from understudy.envs.gym import make_env
from understudy.envs.vector.contract import Resumable, Staggering, resumes_exactly
from understudy.envs.vector.tensor_adapter import TensorVectorEnv
from vector_cases import PENDULUM

COUNT, LIMIT = 3, 4
BOX = Box((-1.0, -1.0), (1.0, 1.0))


class Point:
    """A point that is pushed about; an episode is over after four steps, and it falls off beyond 2."""

    def __init__(self, num_envs: int = COUNT) -> None:
        self.num_envs, self.max_episode_length = num_envs, LIMIT
        self.common_step_counter = 0
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.rng = torch.Generator().manual_seed(0)
        self.place = torch.zeros(num_envs, 2)

    def restart(self, seed: int) -> None:
        self.rng.manual_seed(seed)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.place = torch.randn(self.num_envs, 2, generator=self.rng)

    def obs(self) -> Tensor:
        return self.place.clone()

    def privileged(self) -> Tensor:
        return torch.cat([self.place, self.episode_length_buf[:, None]], 1).float()

    def groups(self) -> dict[str, Tensor]:
        return {"policy": self.obs(), "critic": self.privileged()}

    def advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Rewards, terminated, truncated, groups before the reset."""
        self.common_step_counter += 1
        self.place = self.place + actions
        self.episode_length_buf = self.episode_length_buf + 1
        rewards, fell = -self.place.abs().sum(1), self.place.abs().amax(1) > 2
        late = (self.episode_length_buf >= self.max_episode_length) & ~fell
        final, over = self.groups(), fell | late
        self.place = torch.where(over[:, None], torch.randn(self.num_envs, 2, generator=self.rng), self.place)
        self.episode_length_buf = torch.where(over, 0, self.episode_length_buf)
        return rewards, fell, late, final


class Present(Point):
    """rsl_rl 3 to 5."""

    def get_observations(self) -> Any:
        return self.groups()

    def step(self, actions: Tensor) -> Any:
        rewards, fell, late, final = self.advance(actions)
        return self.groups(), rewards, fell | late, {"time_outs": late, "final_obs": final}


class First(Point):
    """rsl_rl 1 and legged_gym."""

    def get_observations(self) -> Any:
        return self.obs()

    def get_privileged_observations(self) -> Any:
        return self.privileged()

    def step(self, actions: Tensor) -> Any:
        rewards, fell, late, final = self.advance(actions)
        infos = {"time_outs": late, "final_obs": final}
        return self.obs(), self.privileged(), rewards, (fell | late).long(), infos


class Second(Point):
    """rsl_rl 2, with the actor's group once more in its extras, as Isaac Lab's wrapper has it."""

    def get_observations(self) -> Any:
        return self.obs(), {"observations": self.groups()}

    def step(self, actions: Tensor) -> Any:
        rewards, fell, late, final = self.advance(actions)
        extras = {"observations": {**self.groups(), "final": final}, "time_outs": late}
        return self.obs(), rewards, fell | late, extras


class Flags(Point):
    """Gymnasium's order, columns of one, as skrl's wrappers have it."""

    def get_observations(self) -> Any:
        return self.groups(), {}

    def step(self, actions: Tensor) -> Any:
        rewards, fell, late, final = self.advance(actions)
        return self.groups(), rewards[:, None], fell[:, None], late[:, None], {"final_obs": final}


class Alone(Point):
    """rsl_rl 1 without privileged observations."""

    def get_observations(self) -> Any:
        return self.obs()

    def get_privileged_observations(self) -> Any:
        return None

    def step(self, actions: Tensor) -> Any:
        rewards, fell, late, final = self.advance(actions)
        return self.obs(), None, rewards, fell | late, {"time_outs": late, "final_obs": final["policy"]}


def world(kind: Callable[[], Any], **wishes: Any) -> TensorVectorEnv:
    env = kind()
    return TensorVectorEnv(env, BOX, "Point", restart=env.restart, **wishes)


def played(envs: TensorVectorEnv, steps: int = 9) -> list[Tensor]:
    """Everything the actor's half of it told, one step after the other."""
    name = "policy" if "policy" in envs.spec.observation else "state"
    told = [envs.reset(3)[name]]
    for number in range(steps):
        step = envs.step(torch.full((COUNT, 2), 0.5 * (-1) ** number) + torch.arange(COUNT)[:, None] * 0.6)
        told += [step.obs[name], step.final_obs[name], step.reward, step.terminated, step.truncated, step.valid]
    return told


def test_every_form_is_the_same_world() -> None:
    expected = played(world(Present))
    assert any(part.dtype == torch.bool and part.any() for part in expected[4::6]), "something falls"
    assert any(part.any() for part in expected[5::6]), "and something comes to its time"
    for kind in (First, Second, Flags, Alone):
        found = played(world(kind))
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True)), kind.__name__
    for kind in (First, Second, Flags):
        assert world(kind).spec == world(Present).spec
    assert list(world(Alone).spec.observation) == ["state"]
    step = world(Second)
    step.reset(0)
    assert step.step(torch.zeros(COUNT, 2)).obs["critic"].shape == (COUNT, 3)


def test_first_episodes_begin_at_random_ages() -> None:
    envs = world(Present)
    assert isinstance(envs, Staggering)
    envs.stagger_episodes()
    first, again, other = (envs.reset(seed)["critic"][:, 2] for seed in (1, 1, 3))
    assert torch.equal(first, again)
    assert not torch.equal(first, other), "drawn from the seed"
    assert 0 <= int(other.min()) < int(other.max()) < LIMIT
    ages = other.long()
    ends = torch.stack([envs.step(torch.zeros(COUNT, 2)).truncated for _ in range(LIMIT)])
    assert torch.equal(ends.long().argmax(0), LIMIT - 1 - ages), "each when its time has come"

    class Ageless(Present):
        def __init__(self) -> None:
            super().__init__()
            del self.max_episode_length

    with pytest.raises(
        ConfigError, match=r"^source\.stagger_episodes: environment 'Point' has no 'max_episode_length'"
    ):
        world(Ageless).stagger_episodes()

    class Stubborn(Present):
        @property
        def episode_length_buf(self) -> Tensor:
            return torch.zeros(COUNT)

        @episode_length_buf.setter
        def episode_length_buf(self, ages: Tensor) -> None:
            pass

    stubborn = world(Stubborn)
    stubborn.stagger_episodes()
    with pytest.raises(ConfigError, match="does not keep the 'episode_length_buf' it is given"):
        stubborn.reset(3)


def test_what_a_simulator_saves_it_is_given_back() -> None:
    env = Present()

    def save() -> dict[str, Any]:
        return {"steps": env.common_step_counter, "place": env.place, "rng": env.rng.get_state()}

    def load(saved: Any) -> None:
        env.common_step_counter, env.place = int(saved["steps"]), saved["place"].clone()
        env.rng.set_state(saved["rng"])

    envs = TensorVectorEnv(env, BOX, "Point", restart=env.restart, save=save, load=load, exact=True)
    assert isinstance(envs, Resumable)
    assert resumes_exactly(envs)
    assert not resumes_exactly(TensorVectorEnv(env, BOX, "Point", save=save, load=load))
    envs.reset(0)
    envs.step(torch.ones(COUNT, 2) * 0.1)
    saved, seen = envs.save(), env.obs()
    assert int(saved["steps"]) == 1
    envs.step(torch.ones(COUNT, 2))
    assert torch.equal(envs.load(saved)["policy"], seen)
    assert env.common_step_counter == 1
    assert world(Present).save() == {}
    with pytest.raises(CheckpointError, match="cannot be put where it stood"):
        world(Present).load(saved)
    with pytest.raises(ConfigError, match="both save= and load="):
        TensorVectorEnv(env, BOX, "Point", save=save)
    with pytest.raises(RunError, match=r"what it saves is not tensors .*expected tensors by name"):
        TensorVectorEnv(env, BOX, "Point", save=lambda: {"x": "level 3"}, load=load).save()


class Five(Present):
    def step(self, actions: Tensor) -> Any:
        return self.groups(), None, [0.0] * COUNT, None, {}


class Six(Present):
    def get_observations(self) -> Any:
        return self.obs(), {}, {}


class Short(Present):
    def get_observations(self) -> Any:
        return {"policy": self.obs()[:2]}


wrap: Any = TensorVectorEnv
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (
        lambda: wrap(Present, BOX, "p"),
        "a class, not a simulator: got Present.* Make one: Present",
    ),
    "no simulator": (
        lambda: wrap(Point(), BOX, "p"),
        "no simulator of tensors: it has no get_observations and no step: got Point",
    ),
    "Gymnasium's": (lambda: wrap(make_env(PENDULUM), BOX, "p"), "an environment of Gymnasium's"),
    "no space": (lambda: wrap(Present(), 2, "p"), "actions not supported: got 2, expected Box"),
    "no bounds": (
        lambda: wrap(Present(), spaces.Box(-float("inf"), float("inf"), (2,)), "p"),
        "bounds must be finite",
    ),
    "another count": (
        lambda: wrap(Short(), BOX, "p"),
        r"group 'policy': got shape \(2, 2\), expected 3 rows",
    ),
    "three things": (lambda: wrap(Six(), BOX, "p"), "observations are a tuple: got 3 things"),
    "five of none": (lambda: world(Five).step(torch.zeros(COUNT, 2)), "five things of no form that is known: got list"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str) -> None:
    make, told = MISTAKES[mistake]
    with pytest.raises(UnderstudyError, match=told):
        make()


def test_spaces_of_gymnasium_are_accepted() -> None:
    space = spaces.Box(-1.0, 1.0, (2,))
    assert TensorVectorEnv(Present(), space, "Point").spec.action == BOX
    assert isinstance(TensorVectorEnv(Present(), gymnasium.spaces.Discrete(4), "Point").spec, Spec)
