"""A policy over choices of several factors: what it draws, sends and says again."""

import torch

from understudy.core.rng import stream
from understudy.core.spec import Group, MultiDiscrete, Spec
from understudy.nn.actor import Actor
from understudy.nn.distributions import DistributionSettings, make_distribution
from understudy.nn.distributions.categorical import MultiCategorical
from understudy.parts.ppo.networks import OnPolicyActorSettings

COUNTS = (3, 2, 5)
SPEC = Spec({"state": Group((4,), "float32")}, MultiDiscrete(COUNTS))


def made() -> Actor:
    policy = Actor(SPEC, OnPolicyActorSettings.parse({"hidden": [16]}), stream(0, "init"))
    with torch.no_grad():
        policy.trunk.flat.add_(0.5 * torch.randn(policy.trunk.flat.shape, generator=torch.Generator().manual_seed(3)))
    return policy


def test_the_space_has_its_density() -> None:
    density = make_distribution(SPEC.action, DistributionSettings())
    assert isinstance(density, MultiCategorical)
    assert density.counts == list(COUNTS)
    assert density.outputs == sum(COUNTS)


def test_whole_numbers_within_the_counts_are_sent() -> None:
    policy, rng = made(), stream(0, "explore")
    drawn = policy.draw({"state": torch.randn(500, 4, generator=rng)}, (), rng)
    assert drawn.env_action.dtype == torch.int64
    assert drawn.env_action.shape == (500, 3)
    for factor, count in enumerate(COUNTS):
        assert set(drawn.env_action[:, factor].tolist()) == set(range(count))
    greedy, _ = policy.act({"state": torch.randn(7, 4, generator=rng)}, (), greedy=True)
    assert greedy.dtype == torch.int64
    assert greedy.shape == (7, 3)


def test_it_says_again_how_likely_its_draws_were() -> None:
    policy, rng = made(), stream(0, "explore")
    obs = {"state": torch.randn(5, 6, 4, generator=rng)}
    drawn = [policy.draw({"state": row}, (), rng) for row in obs["state"]]
    action, log_prob = (torch.stack([getattr(one, name) for one in drawn]) for name in ("action", "log_prob"))
    again = policy.evaluate(obs, (), None, action)
    torch.testing.assert_close(again.log_prob, log_prob)
    assert again.entropy.shape == (5, 6)


def test_probabilities_of_all_choices_add_up_to_one() -> None:
    policy = made()
    every = torch.cartesian_prod(*[torch.arange(count) for count in COUNTS])
    state = torch.randn(1, 4, generator=torch.Generator().manual_seed(5)).expand(len(every), 4)
    chances = policy.evaluate({"state": state}, (), None, every).log_prob.exp()
    assert len(every) == 30
    torch.testing.assert_close(chances.sum(), torch.tensor(1.0))
