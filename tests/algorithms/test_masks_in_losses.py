"""Masks inside losses of discrete actions: what is illegal is neither counted nor taught."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy import Transitions
from understudy.nn.mlp import MLP
from worlds import random_choices

LEGAL = [True, True, False, False]
POLICIES: list[dict[str, Any]] = [
    {"name": "bc"},
    {"name": "iql"},
    {"name": "ciql"},
    {"name": "ciql", "extraction": "ddpg_bc"},
    {"name": "ciql", "extraction": "greedy_support"},
    {"name": "discrete_cql", "policy": "softmax"},
]
CLONES: list[dict[str, Any]] = [
    {"name": "bc"},
    {"name": "iql", "beta": 0.0},
    {"name": "ciql", "beta": 0.0},
    {"name": "ciql", "extraction": "ddpg_bc", "climb_weight": 0.0},
]


def half_legal(settings: dict[str, Any]) -> tuple[Learning, Transitions]:
    """A learner, and a batch in which the last two of four actions are illegal and never taken."""
    learning = start(tiny_algorithm(**settings), random_choices(masked=True))
    batch = learning.batch()
    mask = torch.tensor(LEGAL).expand(len(batch.action), -1)
    masks = {name: mask for name in batch.extra if name.endswith("mask")}
    return learning, replace(batch, action=batch.action % 2, extra={**batch.extra, **masks})


def outputs_moved(learning: Learning, batch: Transitions, network: MLP) -> Tensor:
    """Which of a network's outputs [..., 4] one update moves, by their weights in the last layer."""
    born = network.layers()[-1].weight.clone()
    learning.algorithm.update(batch)
    return (network.layers()[-1].weight != born).any(-2)


def masked_likelihood(network: MLP, state: Tensor, action: Tensor) -> Tensor:
    """mean −log softmax [] over the first two logits alone."""
    with torch.no_grad():
        logits = network(state)[:, :2]
    return torch.nn.functional.cross_entropy(logits, action)


@pytest.mark.parametrize("settings", POLICIES)
def test_no_policy_learns_about_illegal_actions(settings: dict[str, Any]) -> None:
    learning, batch = half_legal(settings)
    assert outputs_moved(learning, batch, learning.algorithm.policy.trunk).tolist() == LEGAL


@pytest.mark.parametrize("settings", CLONES)
def test_cloning_counts_likelihood_among_legal_actions(settings: dict[str, Any]) -> None:
    learning, batch = half_legal(settings)
    policy = learning.algorithm.policy
    expected = masked_likelihood(policy.trunk, policy.perception.look(batch.obs), batch.action)
    torch.testing.assert_close(learning.algorithm.update(batch).metrics["loss/actor"], expected)


def test_the_clone_that_says_what_is_common_knows_what_is_legal() -> None:
    settings = {"name": "ciql", "extraction": "greedy_support"}
    learning, batch = half_legal(settings)
    network = learning.algorithm.behaviour[0].policy.trunk
    expected = masked_likelihood(network, learning.algorithm.policy.perception.look(batch.obs), batch.action)
    torch.testing.assert_close(learning.algorithm.update(batch).metrics["loss/behaviour"], expected)
    again, batch = half_legal(settings)
    assert outputs_moved(again, batch, again.algorithm.behaviour[0].policy.trunk).tolist() == LEGAL


@pytest.mark.parametrize("penalty", ["cql_h", "mean_gap"])
def test_a_conservative_penalty_leaves_values_of_illegal_actions_alone(penalty: str) -> None:
    learning, batch = half_legal({"name": "ciql", "penalty": penalty})
    assert outputs_moved(learning, batch, learning.algorithm.critic.trunk).tolist() == [LEGAL, LEGAL]
