"""The whole discrete SAC class on two states: sums over legal actions, and what is forbidden leaves no trace."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learners import CPU
from understudy import Dataset, Discrete, Episode
from understudy.algorithms.discrete_sac import Config, DiscreteSAC, build
from understudy.core.protocols import BuildContext

GAMMA, ALPHA = 0.9, 0.5
PAID = (1.0, 2.0, 3.0)
LEGAL = np.array([[True, False, False, False], [True, True, True, False], [False] * 4])
"""In the first state one action, in the second three of four; nothing when all is over."""


def two_steps(masked: bool = True) -> Dataset:
    """The only action leads on and pays nothing; then actions pay 1, 2 and 3, and the episode is over."""
    state = np.eye(3, dtype=np.float32)
    episodes = [
        Episode(
            {"state": state},
            np.array([0, action]),
            np.array([0.0, paid], np.float32),
            terminated=True,
            truncated=False,
            mask=LEGAL if masked else None,
        )
        for action, paid in enumerate(PAID)
    ]
    return Dataset.from_episodes(episodes, Discrete(4), name="two choices")


def learned(dataset: Dataset, updates: int = 500, **changes: Any) -> tuple[DiscreteSAC, dict[str, Tensor]]:
    torch.set_num_threads(1)
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-2)
    fixed = {"entropy_weight": ALPHA, "entropy_learning_rate": 0.0, "polyak": 0.2, "gamma": GAMMA}
    network = {"hidden": [], "normalize": False}
    config = Config.parse({**fixed, **rates, "actor": network, "critic": network, **changes})
    algorithm = build(config, BuildContext(dataset.spec, updates, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    metrics: dict[str, Tensor] = {}
    for _ in range(updates):
        metrics = dict(algorithm.update(batch).metrics)
    return algorithm, metrics


@pytest.fixture(scope="module")
def fixed() -> DiscreteSAC:
    return learned(two_steps())[0]


@torch.no_grad()
def chances(algorithm: DiscreteSAC) -> Tensor:
    """π(·|s) in the first two states [2, 4]."""
    legal = torch.as_tensor(LEGAL[:2]) if algorithm.policy.spec.masked else None
    return torch.softmax(algorithm.policy.features(torch.eye(3)[:2], legal), -1)


def test_the_policy_is_the_softmax_of_values_over_temperature(fixed: DiscreteSAC) -> None:
    """O-23: Q = 1, 2, 3 at α = ½. What is forbidden has probability 0, exactly."""
    found = chances(fixed)
    assert found[1, :3].tolist() == pytest.approx([0.015876, 0.117310, 0.866813], abs=5e-3)
    assert found[1, 3] == 0.0
    assert found[0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_values_are_those_of_the_soft_maximum(fixed: DiscreteSAC) -> None:
    """O-23: α·log Σ exp(Q/α) = 3.071466, discounted once in the state before."""
    with torch.no_grad():
        q = fixed.critic.every(torch.eye(3)[:2]).mean(0)
    assert q[1, :3].tolist() == pytest.approx(PAID, abs=1e-2)
    assert float(q[0, 0]) == pytest.approx(GAMMA * 3.071466, abs=2e-2)


def test_a_learned_temperature_holds_each_states_own_share_of_entropy() -> None:
    """Three legal actions: 0.7·log 3. The state with one has none to give, and asks for none."""
    settings = {"entropy_learning_rate": 2e-2, "entropy_target": 0.7}
    algorithm, metrics = learned(two_steps(), 700, **settings)
    spread = -(chances(algorithm)[1, :3] * chances(algorithm)[1, :3].log()).sum()
    assert float(spread) == pytest.approx(0.7 * math.log(3), abs=0.02)
    assert float(metrics["policy/entropy_missing"]) == pytest.approx(0.0, abs=0.02)


def test_a_state_without_a_choice_says_nothing_of_the_temperature() -> None:
    dataset = two_steps()
    algorithm, _ = learned(dataset, updates=1, entropy_learning_rate=1.0)
    before = algorithm.temperature.log_alpha.detach().clone()
    forced = torch.arange(0, dataset.steps, 2)
    moments = algorithm.temperature.optimizer.first_moments[0]
    moments.zero_()
    algorithm.update(dataset.rows(forced, algorithm.demand))
    assert torch.equal(algorithm.temperature.log_alpha, before)
    assert not moments.any()


def test_a_forbidden_action_and_one_that_is_not_there_are_the_same() -> None:
    """Critics of four actions of which the last is never legal: what they say of it reaches nothing."""
    dataset = two_steps()
    plain, _ = learned(dataset, updates=1)
    poisoned, _ = learned(dataset, updates=1)
    batch = dataset.rows(torch.arange(dataset.steps), plain.demand)
    for network in (poisoned.critic, poisoned.target.network):
        network.trunk.layers()[-1].bias[..., 3] = 1e20
    for _ in range(5):
        told, other = plain.update(batch), poisoned.update(batch)
        assert torch.equal(told.metrics["loss/critic"], other.metrics["loss/critic"])
        assert bool(other.metrics["loss/actor"].isfinite())
    assert torch.equal(chances(plain), chances(poisoned))
