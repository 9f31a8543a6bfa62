"""CIQL's further ways to a policy: the best of the common, a density that forgets tanh, and a policy that waits."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from choosing import choices
from learners import differences, start, tiny_algorithm
from understudy import Box, Dataset, Discrete, Episode
from understudy.core.errors import ConfigError
from understudy.core.state import capture, restore
from understudy.parts.extraction import raw_log_prob
from worlds import random_dataset

SQUASHED = {"hidden": [16], "distribution": "tanh_gaussian"}
FAST: dict[str, Any] = {
    "actor_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "value_learning_rate": 1e-2,
    "polyak": 0.1,
}


def bandit(masked: bool = False) -> Dataset:
    """Three arms that were taken .6, .3 and .1 of the time and are worth 1, ½ and 2; the mask allows the first two."""
    arms = [0] * 60 + [1] * 30 + [2] * (0 if masked else 10)
    states = np.tile(np.array([[[1.0], [1.0]], [[-1.0], [-1.0]]], np.float32), (len(arms) // 2, 1, 1))
    mask = np.array([[True, True, False]] * 2) if masked else None
    episodes = [
        Episode({"state": rows}, np.array([arm]), np.array([[1.0, 0.5, 2.0][arm]]), True, False, mask=mask)
        for arm, rows in zip(arms, states, strict=True)
    ]
    return Dataset.from_episodes(episodes, Discrete(3))


def shares(network: Callable[[Tensor], Tensor]) -> Tensor:
    """Mean probability [3] of each arm over both states, which mean nothing."""
    with torch.no_grad():
        return network(torch.tensor([[1.0], [-1.0]])).softmax(-1).mean(0)


@pytest.mark.parametrize(("share", "best"), [(0.05, 2), (0.3, 0), (1.0, 0)])
def test_the_best_of_the_common_is_played(share: float, best: int) -> None:
    """The third arm is the best and a sixth as common as the first: whether it counts is what `support_share` says."""
    settings: dict[str, Any] = {"extraction": "greedy_support", "support_share": share, "alpha": 0.0, **FAST}
    learning = start(tiny_algorithm("ciql", **settings), bandit(), updates=400, batch_size=100)
    metrics = learning.update(120)
    assert shares(learning.algorithm.policy.features)[best] > 0.8
    assert float(metrics["policy/supported_actions"]) == {0.05: 3.0, 0.3: 2.0, 1.0: 1.0}[share]


def test_the_behaviour_model_clones_the_data() -> None:
    learning = start(tiny_algorithm("ciql", extraction="greedy_support", **FAST), bandit(), batch_size=100)
    learning.update(80)
    (behaviour,) = learning.algorithm.behaviour
    torch.testing.assert_close(shares(behaviour.policy.trunk), torch.tensor([0.6, 0.3, 0.1]), atol=0.08, rtol=0)


def test_illegal_actions_are_never_the_best_of_the_common() -> None:
    settings: dict[str, Any] = {"extraction": "greedy_support", "support_share": 0.0, **FAST}
    learning = start(tiny_algorithm("ciql", **settings), bandit(masked=True), updates=400, batch_size=64)
    metrics = learning.update(100)
    assert float(metrics["policy/supported_actions"]) == 2.0
    legal = shares(learning.algorithm.policy.features)
    assert float(legal[0]) > float(legal[1])


@pytest.mark.parametrize("masked", [False, True])
def test_the_state_of_the_behaviour_model_is_kept(masked: bool) -> None:
    first, second = (start(tiny_algorithm("ciql", extraction="greedy_support"), choices(masked)) for _ in range(2))
    first.update(3)
    assert any(path.startswith("algorithm.behaviour.0.policy.") for path in capture(first))
    restore(second, capture(first), "test")
    for learning in (first, second):
        learning.update(3)
    assert differences(capture(first), capture(second)) == []


def test_other_extractions_have_no_behaviour_model() -> None:
    assert not any("behaviour" in path for path in capture(start(tiny_algorithm("ciql"), choices(False))))


def test_a_raw_density_says_nothing_of_tanh() -> None:
    features = torch.tensor([[0.8, 0.0], [0.8, math.log(2.0)]])
    found = raw_log_prob(features, torch.full((2, 1), 0.8))
    peak = -0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(found, torch.tensor([peak, peak - math.log(2.0)]))


@pytest.mark.parametrize(("policy", "acted"), [("exact", 0.8), ("raw_seed", math.tanh(0.8))])
@pytest.mark.filterwarnings("ignore:algo.policy=raw_seed")
def test_what_is_fitted_raw_is_squashed_when_acted(policy: str, acted: float) -> None:
    """Every action of the data is 0.8; the wrong density makes a policy that acts 0.66."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((4, 21, 2)).astype(np.float32)
    episodes = [Episode({"state": rows}, np.full((20, 1), 0.8), np.zeros(20), True, False) for rows in states]
    settings: dict[str, Any] = {
        "policy": policy,
        "actor": SQUASHED,
        "actor_optimizer": {"schedule": "constant"},
        "actor_learning_rate": 1e-2,
    }
    learning = start(
        tiny_algorithm("ciql", alpha=0.0, **settings),
        Dataset.from_episodes(episodes, Box((-1.0,), (1.0,))),
        updates=600,
    )
    learning.update(250)
    action, _ = learning.algorithm.policy.act({"state": torch.zeros(1, 2)}, (), greedy=True)
    assert float(action) == pytest.approx(acted, abs=0.03)


def test_a_raw_density_warns() -> None:
    with pytest.warns(UserWarning, match=r"algo\.policy=raw_seed: known to be wrong"):
        start(tiny_algorithm("ciql", policy="raw_seed", actor=SQUASHED))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "raw_seed"}, r"policy=raw_seed needs extraction=awr and actor\.distribution=tanh_gaussian"),
        ({"policy": "raw_seed", "actor": SQUASHED, "extraction": "ddpg_bc"}, "policy=raw_seed needs extraction=awr"),
        ({"support_share": 1.5}, r"algo\.support_share"),
        ({"actor_delay": 1000}, r"algo\.actor_delay.*critic_warmup"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_algorithm("ciql", **changes)


@pytest.mark.filterwarnings("ignore:algo.policy=raw_seed")
def test_settings_that_do_not_fit_the_world_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algo\.extraction: greedy_support is for discrete actions"):
        start(tiny_algorithm("ciql", extraction="greedy_support"), random_dataset())
    with pytest.raises(ConfigError, match=r"algo\.policy: raw_seed is for continuous actions"):
        start(tiny_algorithm("ciql", policy="raw_seed", actor=SQUASHED), choices(False))
