"""Target networks, of the algorithms that have them: copies at birth, then moved by Polyak averaging only."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learners import start, tiny_algorithm
from understudy.parts.target import Target
from worlds import learning_from

NETWORKS: list[dict[str, Any]] = [{}, {"layer_norm": True, "dropout": 0.1}]


def pairs(algorithm: Any) -> list[tuple[Target[Any], nn.Module]]:
    """Every target with the network of its kind that it follows."""
    found = []
    for target in vars(algorithm).values():
        if isinstance(target, Target):
            (online,) = (value for value in vars(algorithm).values() if type(value) is type(target.network))
            found.append((target, online))
    return found


WITH_TARGETS = [name for name in learning_from("offline") if pairs(start(tiny_algorithm(name)).algorithm)]

with_targets = pytest.mark.parametrize("name", WITH_TARGETS)
any_network = pytest.mark.parametrize("network", NETWORKS)


def tensors(network: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def test_some_algorithms_have_targets() -> None:
    assert "iql" in WITH_TARGETS
    assert "bc" not in WITH_TARGETS


@with_targets
@any_network
def test_target_networks_are_copies_at_birth(name: str, network: dict[str, Any]) -> None:
    for target, online in pairs(start(tiny_algorithm(name, network)).algorithm):
        mine, theirs = list(target.network.parameters()), list(online.parameters())
        assert all(torch.equal(copy, original) for copy, original in zip(mine, theirs, strict=True))
        places = [{p.untyped_storage().data_ptr() for p in parameters} for parameters in (mine, theirs)]
        assert not places[0] & places[1]
        assert not any(parameter.requires_grad for parameter in mine)
        assert not any(module.training for module in target.network.modules())


@with_targets
@any_network
def test_target_networks_move_by_polyak_only(name: str, network: dict[str, Any]) -> None:
    """Those of TD3 and its kin move when it is the policy's turn and stand still in between."""
    learning = start(tiny_algorithm(name, network))
    rate, delay = learning.algorithm.config.polyak, 2 if name in ("td3bc", "rebrac", "iact") else 1
    for number in range(1, 5):
        moving = number % delay == 0
        before = [tensors(target.network) for target, _ in pairs(learning.algorithm)]
        learning.update()
        for old, (target, online) in zip(before, pairs(learning.algorithm), strict=True):
            for was, now, leader in zip(old, tensors(target.network), tensors(online), strict=True):
                assert torch.equal(now, was.lerp(leader, rate) if moving else was)
                assert torch.equal(now, was) != moving
            assert all(parameter.grad is None for parameter in target.network.parameters())
            assert not any(module.training for module in target.network.modules())
