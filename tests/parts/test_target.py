"""Target networks follow and never lead."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from networks import q_ensemble
from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.critic import QEnsemble
from understudy.parts.optim import Adam
from understudy.parts.target import Target

NETWORKS: list[dict[str, Any]] = [{}, {"layer_norm": True}, {"layer_norm": True, "dropout": 0.5}]


def critic(seed: int = 0, **changes: Any) -> QEnsemble:
    return q_ensemble(3, 2, stream(seed, "init"), **{"hidden": [6], **changes})


def tensors(network: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def fill(network: nn.Module, value: float) -> None:
    for parameter in network.parameters():
        parameter.detach().fill_(value)


def same(left: list[Tensor], right: list[Tensor]) -> list[bool]:
    return [torch.equal(one, other) for one, other in zip(left, right, strict=True)]


def inputs() -> tuple[Tensor, Tensor]:
    return torch.ones(2, 3), torch.ones(2, 2)


@pytest.mark.parametrize("network", NETWORKS)
def test_equal_at_birth_without_gradients_and_apart_in_memory(network: dict[str, Any]) -> None:
    online = critic(**network)
    online(*inputs())
    optimizer, target = Adam.over(online.parameters()), Target.of(online)
    assert all(same(tensors(target.network), tensors(online)))
    assert not any(parameter.requires_grad for parameter in target.network.parameters())
    assert all(parameter.requires_grad for parameter in online.parameters())
    before, output = tensors(target.network), target.network(*inputs())
    optimizer.minimise(online(*inputs()).square().sum(), 0.1)
    fill(online, 1.0)
    assert all(same(tensors(target.network), before))
    assert torch.equal(target.network(*inputs()), output)
    assert not any(same(tensors(online), before)[:1])
    assert not output.requires_grad


@pytest.mark.parametrize("used", [False, True])
def test_the_online_network_does_not_move_with_its_target(used: bool) -> None:
    online = critic()
    target = Target.of(online)
    output = online(*inputs()).detach()
    if used:
        target.network(*inputs())
    for layer in target.network.trunk.layers():
        layer.weight.zero_()
        layer.bias.zero_()
    assert not target.network(*inputs()).any()
    assert torch.equal(online(*inputs()), output)


def test_a_target_never_drops_units() -> None:
    online = critic(dropout=0.5)
    target = Target.of(online)
    before = capture(target)
    first, second = (target.network(*inputs()) for _ in range(2))
    assert torch.equal(first, second)
    after = capture(target)
    assert all(torch.equal(torch.as_tensor(before[path]), torch.as_tensor(after[path])) for path in before)
    assert online.training
    assert not torch.equal(online(*inputs()), online(*inputs()))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("updates", "left"), [(100, 0.605770), (1, 0.995)])
def test_the_distance_shrinks_geometrically(network: dict[str, Any], updates: int, left: float) -> None:
    """O-22: (1 − τ)ⁿ of the distance is left, .605770 after 100 updates of τ = .005."""
    online = critic(**network)
    target = Target.of(online)
    fill(target.network, 0.0)
    fill(online, 1.0)
    for _ in range(updates):
        target.follow(online, 0.005)
    for parameter in tensors(target.network):
        torch.testing.assert_close(1 - parameter, torch.full_like(parameter, left), rtol=0, atol=1e-5)
    assert all(bool((parameter == 1).all()) for parameter in online.parameters())
    assert math.log(0.5) / math.log(0.995) == pytest.approx(138.28, abs=0.01)


@pytest.mark.parametrize("network", NETWORKS)
def test_rate_one_copies(network: dict[str, Any]) -> None:
    target, online = Target.of(critic(**network)), critic(1, **network).eval()
    assert not torch.equal(target.network(*inputs()), online(*inputs()))
    target.follow(online, 1.0)
    assert all(same(tensors(target.network), tensors(online)))
    assert torch.equal(target.network(*inputs()), online(*inputs()))


def test_a_restored_target_goes_on_in_its_own_network() -> None:
    target, other, online = Target.of(critic()), Target.of(critic(1)), critic(2)
    place = target.network.trunk.flat.data_ptr()
    target.network(*inputs())
    restore(target, capture(other), "test")
    assert target.network.trunk.flat.data_ptr() == place
    for moving in (target, other):
        moving.follow(online, 0.1)
    assert torch.equal(target.network(*inputs()), other.network(*inputs()))
    assert all(same(tensors(target.network), tensors(other.network)))
