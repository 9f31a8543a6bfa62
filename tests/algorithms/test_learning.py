"""Algorithms learn: seconds each, with margins that a broken one misses.

The data: seventy Pendulum episodes of random play and of a scripted swing-up, weak to good, all noisy. Cloning
the mixture is no better than the mixture; choosing the good actions in it solves the task.
"""

from typing import Any

import pytest
import torch

from learners import start
from understudy import Dataset, evaluate_policy, make_dataset
from understudy.algorithms import find_algorithm
from understudy.data.recipes import Recipe

ENV = "Pendulum-v1"
NETWORK = {"hidden": [64, 64]}
CLONING: dict[str, Any] = {"name": "bc", "learning_rate": 2e-3, "actor": NETWORK}
IMPLICIT: dict[str, Any] = {
    "name": "iql",
    "expectile": 0.8,
    "beta": 10.0,
    "gamma": 0.97,
    "polyak": 0.02,
    "actor_learning_rate": 2e-3,
    "critic_learning_rate": 2e-3,
    "value_learning_rate": 2e-3,
    "actor": NETWORK,
    "critic": NETWORK,
}

CLIMBING: dict[str, Any] = {
    "gamma": 0.97,
    "polyak": 0.02,
    "actor_learning_rate": 2e-3,
    "critic_learning_rate": 2e-3,
    "actor": NETWORK,
    "critic": NETWORK,
}
MINIMALIST: dict[str, Any] = {"name": "td3bc", "alpha": 10.0, **CLIMBING}
REVISITED: dict[str, Any] = {"name": "rebrac", "actor_penalty": 0.1, "critic_penalty": 0.01, **CLIMBING}


@pytest.fixture(scope="module")
def mixture() -> Dataset:
    scripted = [(15, 0.4, 0.3, 0.1), (20, 0.7, 0.4, 0.2), (20, 0.9, 0.5, 0.3)]
    behaviours: list[dict[str, Any]] = [{"policy": "random", "share": 15}]
    behaviours += [
        {"policy": "scripted", "share": share, "skill": skill, "noise": noise, "epsilon": epsilon}
        for share, skill, noise, epsilon in scripted
    ]
    return make_dataset(Recipe.parse({"env": ENV, "episodes": 70, "seed": 0, "behaviours": behaviours}))


def learned_return(dataset: Dataset, settings: dict[str, Any], updates: int, seed: int = 0) -> float:
    """Mean return of twenty episodes from fixed starts."""
    torch.set_num_threads(1)
    config = find_algorithm(settings["name"]).Config.parse(settings, "algo")
    scaled = dataset.with_rewards(lambda reward: 0.1 * reward)
    learning = start(config, scaled, seed=seed, updates=updates, batch_size=128)
    learning.update(updates)
    return evaluate_policy(learning.algorithm.policy, ENV, 20, 900).mean


@pytest.fixture(scope="module")
def cloned(mixture: Dataset) -> float:
    return learned_return(mixture, CLONING, 1000)


@pytest.fixture(scope="module")
def player_data() -> Dataset:
    player = {"policy": "scripted", "skill": 1.0, "noise": 0.2}
    return make_dataset(Recipe.parse({"env": ENV, "episodes": 30, "seed": 0, "behaviours": [player]}))


@pytest.mark.parametrize("distribution", ["tanh_mean_gaussian", "gaussian", "tanh_gaussian", "deterministic"])
def test_cloning_a_good_player_gives_a_good_player(distribution: str, player_data: Dataset) -> None:
    """The player earns −155; an untrained policy about −1300."""
    settings = {**CLONING, "actor": {**NETWORK, "distribution": distribution}}
    assert learned_return(player_data, settings, 1000) > -350


def test_iql_chooses_the_good_actions(mixture: Dataset, cloned: float) -> None:
    """Measured: −250 with three seeds; the data −800, cloning −820 to −1050.

    Broken: no target updates −1150, no bootstrap −920, β = 0 −910, advantage or reward sign below −1580. A flipped
    expectile (−290) and truncation read as termination (−250) are not seen here: tests/golden sees them.
    """
    found = learned_return(mixture, IMPLICIT, 1500)
    assert found > float(mixture.returns().mean()) + 350
    assert found > cloned + 350
    assert found > -400


@pytest.mark.parametrize("settings", [MINIMALIST, REVISITED], ids=["td3bc", "rebrac"])
def test_climbing_near_the_data_finds_the_good_actions(
    settings: dict[str, Any], mixture: Dataset, cloned: float
) -> None:
    """Measured with three seeds: TD3+BC −294 to −329, ReBRAC −281 to −301; the data −800, cloning −820 to −1050.

    Broken: the value's sign flipped below −1460, no value −910, no bootstrap −970, no target updates −830. Without the
    penalty it is as good here, where random play covers every action: the next test sees that.
    """
    found = learned_return(mixture, settings, 1500)
    assert found > float(mixture.returns().mean()) + 350
    assert found > cloned + 350
    assert found > -400


@pytest.mark.parametrize("settings", [{"alpha": 2.5}, {"actor_penalty": 1.0}], ids=["td3bc", "rebrac"])
def test_narrow_data_is_not_left_behind(settings: dict[str, float], player_data: Dataset) -> None:
    """The player earns −159, and hardly ever tried another action. Without the penalty: −910 to −1460."""
    whole = (MINIMALIST if "alpha" in settings else REVISITED) | settings
    assert learned_return(player_data, whole, 1000) > -700
