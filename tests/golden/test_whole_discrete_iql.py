"""The whole IQL class on T30 with discrete actions: the policy's probabilities themselves meet the tabular numbers."""

from typing import Any

import pytest
import torch
from t30 import GAMMA, t30_choices

from learners import CPU
from understudy.algorithms.iql import IQL, Config, build
from understudy.core.protocols import BuildContext

STATES = torch.eye(3)
LEGAL = torch.tensor([True, True, False]).expand(3, 3)
UPDATES = 1500


@pytest.fixture(scope="module")
def iql() -> IQL:
    torch.set_num_threads(1)
    dataset, network = t30_choices(), {"hidden": [32]}
    settings: dict[str, Any] = {"gamma": GAMMA, "polyak": 0.1, "actor": network, "critic": network}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 1e-2)
    algorithm = build(Config.parse({**settings, **rates}), BuildContext(dataset.spec, UPDATES, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    for _ in range(UPDATES):
        algorithm.update(batch)
    return algorithm


def test_values(iql: IQL) -> None:
    """O-4."""
    assert iql.value(STATES).tolist() == pytest.approx([0.872805, 0.995657, 0.828912], abs=0.01)


def test_both_critics(iql: IQL) -> None:
    """O-6."""
    states, actions = STATES.repeat_interleave(2, 0), torch.tensor([0, 1]).repeat(3)
    for member in iql.critic(states, actions):
        assert member.tolist() == pytest.approx([0.896092, 0.746021, 1, 0.985524, 1.392762, 0.5], abs=0.015)


def test_policy(iql: IQL) -> None:
    """O-7, O-21: advantage-weighted frequencies over legal actions, and exactly 0 elsewhere."""
    chances = iql.policy.features(STATES, LEGAL).softmax(1)
    expected = [0.785415, 0.214585, 0.510855, 0.489145, 0.784484, 0.215516]
    assert chances[:, :2].flatten().tolist() == pytest.approx(expected, abs=0.01)
    assert not chances[:, 2].any()
