"""Rollouts hold what happened: true successors, the policy's own words, memory that ends with its episode."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from understudy.core.batch import Obs, Rollout
from understudy.core.errors import ConfigError
from understudy.core.protocols import ActionSample, Carry
from understudy.core.rng import derived_seed, simulator_seed
from understudy.core.spec import ACTION_MASK
from understudy.core.state import capture, restore
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.sources.playing.episode_log import EpisodeLog
from understudy.sources.rollout import RolloutSource
from vector_cases import BATTLE, CARTPOLE, LIMITS, PENDULUM, WORLDS, play_single

COUNT, STEPS, SEED = 4, 20, 6
FIRST = 0.5
"""A memory that is not zero at first."""


def log_prob(density: Distribution, action: Tensor) -> Tensor:
    told: Any = density
    return torch.as_tensor(told.log_prob(action))


class Leaning:
    """A Gaussian policy that leans on its last observation and on how long its episode is going on."""

    def __init__(self, half: float = 2.0) -> None:
        self.half = half
        self.weight = torch.tensor([[0.3], [-0.2], [0.1]], requires_grad=True)

    def initial(self, count: int) -> Carry:
        return torch.full((count, 1), FIRST), torch.zeros(count, 3, 1)

    def density(self, obs: Obs, carry: Carry) -> tuple[Normal, Carry]:
        age, last = carry
        mean = obs["state"] @ self.weight + 0.05 * age + 0.1 * last.sum(1)
        return Normal(mean, 0.8), (age + 1, obs["state"][..., None])

    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample:
        density, carry = self.density(obs, carry)
        action = density.mean + 0.8 * torch.randn(density.mean.shape, generator=rng)
        env_action = (action * self.half).clamp(-self.half, self.half)
        return ActionSample(action, env_action, log_prob(density, action).sum(1), carry)

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: Any = None) -> tuple[Tensor, Carry]:
        raise NotImplementedError


class Choosing:
    """Any of the legal choices, without memory."""

    def initial(self, count: int) -> Carry:
        return ()

    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample:
        legal = obs.get(ACTION_MASK, torch.ones(len(next(iter(obs.values()))), 2, dtype=torch.bool)).float()
        action = torch.multinomial(legal, 1, generator=rng)[:, 0]
        return ActionSample(action, action, log_prob(Categorical(legal), action), ())

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: Any = None) -> tuple[Tensor, Carry]:
        raise NotImplementedError


def source(kind: str = "local", name: str = PENDULUM, seed: int = SEED, steps: int = STEPS) -> RolloutSource:
    policy = Leaning() if name == PENDULUM else Choosing()
    return RolloutSource.build(WORLDS[kind](name, COUNT), policy, steps, seed)


def begins(rollout: Rollout) -> Tensor:
    """Where the step after is the first of an episode [T, N]."""
    return rollout.ended | ~rollout.valid


def same(one: Rollout, other: Rollout) -> bool:
    pairs = [(one.action, other.action), (one.log_prob, other.log_prob), (one.reward, other.reward)]
    pairs += [(one.terminated, other.terminated), (one.truncated, other.truncated), (one.valid, other.valid)]
    pairs += [(one.obs[name], other.obs[name]) for name in one.obs]
    pairs += [(one.next_obs[name], other.next_obs[name]) for name in one.obs]
    pairs += list(zip(one.carry, other.carry, strict=True))
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("kind", WORLDS)
def test_shapes_and_successors(kind: str) -> None:
    playing, policy = source(kind), Leaning()
    first, second = playing.next(policy), playing.next(policy)
    assert first.obs["state"].shape == first.next_obs["state"].shape == (STEPS, COUNT, 3)
    assert first.action.shape == (STEPS, COUNT, 1)
    assert all(part.shape == (STEPS, COUNT) for part in (first.reward, first.log_prob, first.valid, first.ended))
    seen = torch.cat([first.obs["state"][1:], second.obs["state"][:1]])
    going_on = ~first.ended
    assert torch.equal(first.next_obs["state"][going_on], seen[going_on])
    if kind != "next step":
        assert (first.next_obs["state"] != seen).any(-1)[first.ended].all(), "the successor is not another episode's"
    assert first.truncated.any()
    assert not first.action.requires_grad
    assert not first.log_prob.requires_grad


@pytest.mark.parametrize("kind", WORLDS)
def test_facts_are_those_of_single_environments(kind: str) -> None:
    playing, policy = source(kind), Leaning()
    rollouts = [playing.next(policy) for _ in range(2)]
    obs, after = (torch.cat([getattr(one, part)["state"] for one in rollouts]) for part in ("obs", "next_obs"))
    action, reward, valid = (
        torch.cat([getattr(one, part) for one in rollouts]) for part in ("action", "reward", "valid")
    )
    shortest = int(valid.sum(0).min())
    env_action = torch.stack([(2 * action[valid[:, n], n]).clamp(-2, 2)[:shortest] for n in range(COUNT)])
    seed = derived_seed(SEED, "rollout")
    for n, facts in enumerate(play_single(PENDULUM, env_action, simulator_seed(seed) if kind == "tensors" else seed)):
        rows = valid[:, n].nonzero()[:shortest, 0]
        for fact, t in zip(facts, rows, strict=True):
            assert torch.equal(obs[t, n], torch.from_numpy(fact.obs["state"]))
            assert torch.equal(after[t, n], torch.from_numpy(fact.next_obs["state"]))
            assert reward[t, n] == fact.reward


@pytest.mark.parametrize("kind", ["local", "next step"])
def test_log_probs_and_memory_can_be_repeated(kind: str) -> None:
    """Running the policy over the rollout gives what was stored, if memory is fresh where an episode begins."""
    playing, policy = source(kind), Leaning()
    for number in range(3):
        rollout = playing.next(policy)
        carry = rollout.carry
        for t in range(STEPS):
            density, carry = policy.density({"state": rollout.obs["state"][t]}, carry)
            assert torch.equal(log_prob(density, rollout.action[t]).sum(1), rollout.log_prob[t])
            fresh = policy.initial(COUNT)
            flags = begins(rollout)[t]
            carry = tuple(
                torch.where(flags.reshape(-1, *[1] * (c.dim() - 1)), f, c) for c, f in zip(carry, fresh, strict=True)
            )
        assert begins(rollout).any(), f"rollout {number} has no end"
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(carry, playing.carry, strict=True))


def test_memory_is_as_old_as_its_episode() -> None:
    playing, policy = source(), Leaning()
    age = torch.zeros(COUNT)
    for _ in range(3):
        rollout = playing.next(policy)
        assert torch.equal(rollout.carry[0][:, 0], age + FIRST)
        for ended in rollout.ended:
            age = torch.where(ended, 0.0, age + 1)


@pytest.mark.parametrize("kind", ["local", "next step"])
@pytest.mark.parametrize("name", [CARTPOLE, BATTLE])
def test_statistics_are_sums_over_episodes(kind: str, name: str) -> None:
    playing, policy = source(kind, name), Choosing()
    returns, lengths, told = torch.zeros(COUNT, dtype=torch.float64), torch.zeros(COUNT, dtype=torch.int64), []
    for _ in range(4):
        rollout = playing.next(policy)
        for reward, valid, ended in zip(rollout.reward, rollout.valid, rollout.ended, strict=True):
            returns, lengths = returns + reward, lengths + valid
            told += [(float(returns[n]), int(lengths[n])) for n in range(COUNT) if ended[n]]
            returns, lengths = returns.masked_fill(ended, 0), lengths.masked_fill(ended, 0)
    found = playing.finished()
    assert told
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == told
    assert len(playing.finished()[0]) == 0


def test_dummy_steps_are_no_steps() -> None:
    playing, policy = source("next step"), Leaning()
    rollouts = [playing.next(policy) for _ in range(2)]
    valid = torch.cat([rollout.valid for rollout in rollouts])
    ended = torch.cat([rollout.ended for rollout in rollouts])
    assert torch.equal(~valid[1:], ended[:-1])
    assert playing.env_steps == int(valid.sum()) < 2 * STEPS * COUNT
    assert playing.finished()[1].tolist() == [LIMITS[PENDULUM]] * len(playing.log.returns[: playing.log.total])


def test_a_log_of_fixed_size_keeps_the_newest() -> None:
    log = EpisodeLog.empty(2)
    room = len(log.returns)
    for number in range(room):
        ended = torch.tensor([[True, number % 2 == 1]])
        log.add(torch.tensor([[number, -1.0]]), torch.tensor([[True, True]]), ended)
    returns, lengths = log.ask()
    assert len(returns) == room
    assert returns[-2:].tolist() == [room - 1, -2.0]
    assert lengths[-2:].tolist() == [1, 2]
    recent = log.recent()
    assert [part.tolist() for part in recent] == [returns[-100:].tolist(), lengths[-100:].tolist()], "asked or not"
    few = EpisodeLog.empty(1)
    assert len(few.recent()[0]) == 0
    few.add(torch.tensor([[2.0], [3.0], [4.0]]), torch.ones(3, 1).bool(), torch.tensor([[True], [False], [True]]))
    assert [part.tolist() for part in few.recent()] == [[2.0, 7.0], [1, 2]]


def test_a_seed_decides_everything() -> None:
    policy = Leaning()
    one, two, other = source(), source(), source(seed=7)
    for _ in range(2):
        first = one.next(policy)
        assert same(first, two.next(policy))
        assert not same(first, other.next(policy))


def test_rollouts_do_not_change_afterwards() -> None:
    playing, policy = source(), Leaning()
    first = playing.next(policy)
    kept = [first.obs["state"].clone(), first.next_obs["state"].clone(), first.reward.clone(), first.carry[0].clone()]
    playing.next(policy)
    now = [first.obs["state"], first.next_obs["state"], first.reward, first.carry[0]]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(kept, now, strict=True))


@pytest.mark.parametrize("stagger_episodes", [False, True])
def test_resume_to_the_bit_where_the_simulator_can_tell(stagger_episodes: bool) -> None:
    def build(seed: int) -> RolloutSource:
        world = LocalVectorEnv(PENDULUM, COUNT, stagger_episodes=stagger_episodes)
        return RolloutSource.build(world, Leaning(), 9, seed)

    policy, through, resumed = Leaning(), build(SEED), build(SEED)
    for _ in range(3):
        through.next(policy)
    state = capture(through)
    resumed.next(policy)  # it stands elsewhere, and must follow
    restore(resumed, state, "test")
    for _ in range(3):
        assert same(through.next(policy), resumed.next(policy))
    mine, theirs = through.finished(), resumed.finished()
    assert torch.equal(mine[0], theirs[0])
    assert through.env_steps == resumed.env_steps == 6 * 9 * COUNT


@pytest.mark.parametrize("kind", ["same step", "tensors"])
def test_resume_begins_new_episodes_where_it_cannot(kind: str) -> None:
    policy, through = Leaning(), source(kind, steps=9)
    through.next(policy)
    state = capture(through)
    ahead = through.next(policy)
    again = []
    for _ in range(2):
        resumed = source(kind, steps=9)
        restore(resumed, state, "test")
        again.append(resumed.next(policy))
        assert resumed.env_steps == 2 * 9 * COUNT
        lengths = resumed.finished()[1]
        assert lengths.tolist() == [LIMITS[PENDULUM]] * len(lengths), "what was left unfinished is not counted"
    assert same(*again)
    assert not same(ahead, again[0])
    assert torch.equal(again[0].carry[0], policy.initial(COUNT)[0])


def test_reward_terms_are_kept_where_told() -> None:
    world = WORLDS["tensors"](PENDULUM, COUNT)
    rollout = RolloutSource.build(world, Leaning(), 5, 0).next(Leaning())
    assert torch.equal(rollout.reward_terms["each"], rollout.reward * 2)
    assert torch.equal(rollout.reward_terms["all"], torch.full((5, COUNT), 3.0))


class Ageing:
    """Records what is seen, and for how long its episode is going on."""

    def initial(self, count: int) -> Carry:
        return (torch.zeros(count, 1),)

    def record(self, obs: Obs, carry: Carry) -> tuple[dict[str, Tensor], Carry]:
        return {"age": carry[0][:, 0], "double": 2 * obs["state"]}, (carry[0] + 1,)


def ages(rollouts: list[Rollout]) -> Tensor:
    """By brute force, over rollouts that follow each other [T, N]."""
    first = torch.cat([begins(rollout) for rollout in rollouts])
    found = torch.zeros(len(first), COUNT)
    for t in range(1, len(found)):
        found[t] = torch.where(first[t - 1], 0.0, found[t - 1] + 1)
    return found


@pytest.mark.parametrize("kind", ["local", "next step"])
def test_recorders_see_what_the_policy_sees_and_forget_at_the_end_of_an_episode(kind: str) -> None:
    policy = Leaning()
    plain, recording = (
        RolloutSource.build(WORLDS[kind](PENDULUM, COUNT), policy, STEPS, SEED, recorders=recorders)
        for recorders in ({}, {"old": Ageing()})
    )
    played = [recording.next(policy) for _ in range(3)]
    assert torch.equal(torch.cat([rollout.extra["old/age"] for rollout in played]), ages(played))
    assert bool(torch.cat([begins(rollout) for rollout in played]).any())
    for rollout in played:
        assert torch.equal(rollout.extra["old/double"], 2 * rollout.obs["state"])
        assert same(replace(rollout, extra={}), plain.next(policy)), "recording changes nothing else"


def test_what_recorders_remember_is_resumed_and_begins_anew_with_the_episodes() -> None:
    policy = Leaning()
    for kind, goes_on in (("local", True), ("tensors", False)):
        through, resumed = (
            RolloutSource.build(WORLDS[kind](PENDULUM, COUNT), policy, 9, SEED, recorders={"old": Ageing()})
            for _ in range(2)
        )
        through.next(policy)
        restore(resumed, capture(through), "test")
        expected = through.next(policy).extra["old/age"]
        found = resumed.next(policy).extra["old/age"]
        assert torch.equal(found, expected) == goes_on
        assert torch.equal(found[0], torch.zeros(COUNT)) == (not goes_on)


class Noting(Leaning):
    """Draws something else beside its actions."""

    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample:
        drawn = super().draw(obs, carry, rng)
        return replace(drawn, extra={"coin": (drawn.action > 0).float()})


def test_what_a_policy_draws_besides_its_actions_is_stored() -> None:
    rollout = RolloutSource.build(WORLDS["local"](PENDULUM, COUNT), Noting(), 5, SEED).next(Noting())
    assert torch.equal(rollout.extra["coin"], (rollout.action > 0).float())


def test_a_rollout_needs_steps() -> None:
    world: VectorEnv = LocalVectorEnv(PENDULUM, 1)
    with pytest.raises(ConfigError, match=r"source\.steps: a rollout needs steps"):
        RolloutSource.build(world, Leaning(), 0, 0)
