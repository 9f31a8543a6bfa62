"""Proposed actions: three kinds in order, with the densities they were drawn with; critics asked about all at once."""

import math

import pytest
import torch
from torch import Tensor

from networks import q_ensemble
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.parts.proposals import Proposals
from understudy.parts.soft_critic import values_of_many

ROWS, ACTIONS, COUNT = 4000, 2, 3


def features(mean: float, log_std: float) -> Tensor:
    return torch.tensor([[mean, -mean, log_std, log_std]]).expand(ROWS, -1)


def test_three_kinds_in_order() -> None:
    here, there = features(1.0, -2.0), features(-1.0, -2.0)
    actions, log_density = Proposals.seeded(0).draw(here, there, COUNT)
    assert actions.shape == (3 * COUNT, ROWS, ACTIONS)
    assert log_density.shape == (3 * COUNT, ROWS)
    uniform, of_here, of_there = torch.split(actions, COUNT)
    assert float(uniform.min()) < -0.99 < 0.99 < float(uniform.max())
    assert float(of_here[..., 0].mean()) == pytest.approx(math.tanh(1.0), abs=0.02)
    assert float(of_there[..., 0].mean()) == pytest.approx(-math.tanh(1.0), abs=0.02)


def test_each_with_its_own_density() -> None:
    """The policy's density of the very action; 1/4 for two uniform dimensions."""
    here, there = features(0.3, -0.5), features(-0.6, 0.1)
    actions, log_density = Proposals.seeded(0).draw(here, there, COUNT)
    assert bool((log_density[:COUNT] == -2 * math.log(2.0)).all())
    head = TanhGaussian(ACTIONS)
    for number in range(COUNT):
        for place, source in ((COUNT, here), (2 * COUNT, there)):
            expected = head.log_prob(source, actions[place + number])
            torch.testing.assert_close(log_density[place + number], expected, atol=2e-3, rtol=1e-3)


def test_proposals_are_constants_and_their_streams_apart() -> None:
    learned = torch.zeros(4, 4, requires_grad=True)
    actions, log_density = Proposals.seeded(0).draw(learned, learned, 2)
    assert not actions.requires_grad
    assert not log_density.requires_grad
    assert not torch.equal(actions[2:4], actions[4:6]), "the same features, other draws"


def test_many_actions_are_asked_in_one_pass() -> None:
    rng = torch.Generator().manual_seed(0)
    critic = q_ensemble(3, ACTIONS, rng, hidden=[16])
    state, actions = torch.randn(7, 3, generator=rng), torch.randn(5, 7, ACTIONS, generator=rng)
    values = values_of_many(critic, state, actions)
    assert values.shape == (2, 5, 7)
    one_by_one = torch.stack([critic(state, action) for action in actions], dim=1)
    torch.testing.assert_close(values, one_by_one)
