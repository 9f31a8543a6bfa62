"""Target networks follow and never lead."""

import math

import pytest
import torch

from understudy.core.rng import stream
from understudy.nn.critic import QEnsemble
from understudy.nn.mlp import NetworkSettings
from understudy.parts.optim import Adam
from understudy.parts.target import Target


def critic() -> QEnsemble:
    return QEnsemble(3, 2, NetworkSettings(hidden=(6,)), stream(0, "init"))


def test_equal_at_birth_without_gradients_and_apart_in_memory() -> None:
    network = critic()
    online = Adam.over(network.parameters())
    target = Target.of(network)
    assert torch.equal(target.flat, online.flat)
    assert not any(parameter.requires_grad for parameter in target.network.parameters())
    online.flat.add_(1.0)
    assert not torch.equal(target.flat, online.flat)
    assert not target.network(torch.zeros(2, 3), torch.zeros(2, 2)).requires_grad


def test_the_network_is_a_view_of_the_buffer() -> None:
    target = Target.of(critic())
    target.flat.zero_()
    assert not target.network(torch.ones(2, 3), torch.ones(2, 2)).any()


@pytest.mark.parametrize(("updates", "left"), [(100, 0.605770), (1, 0.995)])
def test_the_distance_shrinks_geometrically(updates: int, left: float) -> None:
    """O-22: (1 − τ)ⁿ of the distance is left, .605770 after 100 updates of τ = .005."""
    network = critic()
    target = Target.of(network)
    target.flat.zero_()
    online = torch.ones_like(target.flat)
    for _ in range(updates):
        target.follow(online, 0.005)
    torch.testing.assert_close(1 - target.flat, torch.full_like(online, left), rtol=0, atol=1e-5)
    assert math.log(0.5) / math.log(0.995) == pytest.approx(138.28, abs=0.01)


def test_rate_one_copies() -> None:
    target = Target.of(critic())
    online = torch.randn(target.flat.shape, generator=torch.Generator().manual_seed(0))
    target.follow(online, 1.0)
    assert torch.equal(target.flat, online)
