"""Algorithms learn discrete actions: seconds each, with margins that a broken one misses.

The data: two hundred CartPole episodes of random play and of a player who hardly sees the pole's speed. Nobody in it
is good; who prefers what lasted longer balances the pole for good.
"""

from typing import Any

import pytest
import torch

from learners import start
from understudy import Dataset, evaluate_policy, load_config, make_dataset
from understudy.algorithms import find_algorithm

ENV = "CartPole-v1"


@pytest.fixture(scope="module")
def play() -> Dataset:
    recipe = load_config("discrete_cql/cartpole").logged.recipe
    assert recipe is not None
    return make_dataset(recipe)


def learned_return(dataset: Dataset, algorithm: str, updates: int, **changes: Any) -> float:
    """Mean return of ten episodes from fixed starts, with the settings of the packaged config."""
    torch.set_num_threads(1)
    settings = {**load_config(f"{algorithm}/cartpole").algo.model_dump(), **changes}
    config = find_algorithm(algorithm).Config.parse(settings, "algo")
    learning = start(config, dataset, updates=updates, batch_size=128)
    learning.update(updates)
    return evaluate_policy(learning.algorithm.policy, ENV, 10, 900).mean


@pytest.fixture(scope="module")
def cloned(play: Dataset) -> float:
    return learned_return(play, "bc", 1000)


def test_the_data_is_poor(play: Dataset) -> None:
    assert 30 < float(play.returns().mean()) < 60


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("discrete_cql", {}),
        ("discrete_cql", {"policy": "softmax", "actor": {"hidden": [64, 64]}, "actor_learning_rate": 1e-3}),
        ("iql", {}),
        pytest.param("iact", {}, marks=pytest.mark.slow),
    ],
)
def test_it_balances_the_pole(play: Dataset, cloned: float, algorithm: str, changes: dict[str, Any]) -> None:
    """Measured: 490 to 500; the data 45, cloning 67. Broken: α = 0 171, γ = 0 40, no target updates 52; IACT's α of 2.5
    instead of 10 115."""
    found = learned_return(play, algorithm, 1500, **changes)
    assert found > float(play.returns().mean()) + 300
    assert found > cloned + 250
