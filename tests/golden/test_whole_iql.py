"""The whole IQL class on T30: networks, optimisers, dataset flags and order of steps meet the tabular numbers."""

from typing import Any

import pytest
import torch
from t30 import GAMMA, t30_dataset
from torch import Tensor

from learners import CPU
from understudy import Dataset
from understudy.algorithms.iql import IQL, Config, build
from understudy.core.protocols import BuildContext

STATES = torch.eye(3)
UPDATES = 2500


def learned(dataset: Dataset) -> IQL:
    """Full batches, so that only the fixed point and not the sampling decides."""
    network: dict[str, Any] = {"hidden": [32]}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 5e-3)
    config = Config.parse(
        {"expectile": 0.7, "beta": 3.0, "gamma": GAMMA, "polyak": 0.1, "actor": network, "critic": network, **rates}
    )
    algorithm = build(config, BuildContext(dataset.spec, UPDATES, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    for _ in range(UPDATES):
        algorithm.update(batch)
    return algorithm


@pytest.fixture(scope="module")
def iql() -> IQL:
    torch.set_num_threads(1)
    return learned(t30_dataset())


def numbers(values: Tensor) -> list[float]:
    return [float(value) for value in values.detach().flatten()]


def test_values(iql: IQL) -> None:
    """O-4."""
    assert numbers(iql.value(STATES)) == pytest.approx([0.872805, 0.995657, 0.828912], abs=0.01)


def test_both_critics(iql: IQL) -> None:
    """O-6."""
    states, actions = STATES.repeat_interleave(2, 0), torch.tensor([[-1.0], [1.0]]).repeat(3, 1)
    expected = [0.896092, 0.746021, 1, 0.985524, 1.392762, 0.5]
    for critic in (iql.critic, iql.target.network):
        for member in critic(states, actions):
            assert numbers(member) == pytest.approx(expected, abs=0.015)


def test_policy(iql: IQL) -> None:
    """O-7: the Gaussian's mean is π(+1) − π(−1)."""
    action, _ = iql.policy.act({"state": STATES}, (), greedy=True)
    expected = [0.214585 - 0.785415, 0.489145 - 0.510855, 0.215516 - 0.784484]
    assert numbers(action) == pytest.approx(expected, abs=0.03)
