"""Playing a rollout at once says and does what drawing step by step does."""

from typing import Any

import pytest
import torch

from understudy.core.batch import Obs
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.nn.actor import Actor
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.sources.playing.rollout_actor import GaussianActor, SamplingActor, SmallGaussianActor, rollout_actor

SPEC = Spec({"state": Group((5,), "float32")}, Box((-2.0, 0.0, -1.0), (2.0, 4.0, 1.0)))
COUNT, STEPS = 6, 9
CPU = torch.device("cpu")


def explorer(**settings: Any) -> Actor:
    return Actor(SPEC, OnPolicyActorSettings.parse(settings), stream(0, "policy"))


def observations() -> list[Obs]:
    rng = stream(1, "obs")
    return [{"state": torch.randn(COUNT, 5, generator=rng)} for _ in range(STEPS)]


@pytest.mark.parametrize(
    "shape",
    [
        {"hidden": [8], "layer_norm": True},
        {"memory": {"kind": "gru", "units": 4}, "hidden": [8, 8]},
    ],
)
@torch.no_grad()
def test_one_step_is_a_draw_to_the_bit(shape: dict[str, Any]) -> None:
    policy, obs = explorer(**shape, distribution={"initial_std": 0.3}), observations()[0]
    drawn = policy.draw(obs, policy.initial(COUNT), stream(2, "explore"))
    player = rollout_actor(policy, 1, COUNT, stream(2, "explore"), CPU)
    assert isinstance(player, GaussianActor)
    env_action, carry = player.play(0, obs, policy.initial(COUNT))
    action, log_prob, _ = player.drawn({"state": obs["state"][None]})
    assert torch.equal(action[0], drawn.action)
    assert torch.equal(log_prob[0], drawn.log_prob)
    assert torch.equal(env_action, drawn.env_action)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(carry, drawn.carry, strict=True))


@torch.no_grad()
def test_what_is_told_of_all_steps_is_what_the_policy_thinks_of_them() -> None:
    """Also of a σ so small that a log-probability from the noise alone would be wrong."""
    policy = explorer(distribution={"initial_std": 1e-3})
    player, seen = rollout_actor(policy, STEPS, COUNT, stream(2, "explore"), CPU), observations()
    env_action = [player.play(t, obs, ())[0] for t, obs in enumerate(seen)]
    rows = {"state": torch.stack([obs["state"] for obs in seen])}
    action, log_prob, _ = player.drawn(rows)
    judged = policy.evaluate(rows, (), None, action)
    assert torch.allclose(log_prob, judged.log_prob, atol=2e-3)  # 1e-7 of a mean is 1e-4 σ
    assert torch.equal(torch.stack(env_action), policy.to_env_action(action))
    assert len({float(noise) for noise in action.flatten()}) == action.numel()


@torch.no_grad()
def test_a_small_policy_plays_what_it_would_draw() -> None:
    """Up to the last bits of its means; its log-probabilities are torch's own of what it did."""
    policy, seen = explorer(hidden=[8, 8], distribution={"initial_std": 0.3}), observations()
    player, rng = rollout_actor(policy, STEPS, COUNT, stream(2, "explore"), CPU), stream(2, "explore")
    assert isinstance(player, SmallGaussianActor)
    env_action = torch.stack([player.play(t, obs, ())[0].clone() for t, obs in enumerate(seen)])
    rows = {"state": torch.stack([obs["state"] for obs in seen])}
    action, log_prob, _ = player.drawn(rows)
    noise = torch.randn(STEPS, COUNT, 3, generator=rng)
    assert torch.allclose(action, policy.judge(rows["state"], action).features[..., :3] + 0.3 * noise, atol=1e-6)
    assert torch.allclose(env_action, policy.to_env_action(action), atol=1e-6)
    assert bool((env_action.abs() <= torch.tensor([2.0, 4.0, 1.0])).all())
    assert torch.allclose(log_prob, policy.evaluate(rows, (), None, action).log_prob, atol=1e-6)


@torch.no_grad()
def test_other_densities_are_drawn_step_by_step() -> None:
    policy, seen = explorer(distribution={"kind": "beta"}), observations()
    player, rng = rollout_actor(policy, STEPS, COUNT, stream(2, "explore"), CPU), stream(2, "explore")
    assert isinstance(player, SamplingActor)
    drawn = [policy.draw(obs, (), rng) for obs in seen]
    env_action = [player.play(t, obs, ())[0] for t, obs in enumerate(seen)]
    action, log_prob, _ = player.drawn({})
    assert torch.equal(action, torch.stack([one.action for one in drawn]))
    assert torch.equal(log_prob, torch.stack([one.log_prob for one in drawn]))
    assert torch.equal(torch.stack(env_action), torch.stack([one.env_action for one in drawn]))
