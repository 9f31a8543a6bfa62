"""TD3+BC without its value is behaviour cloning, and ReBRAC without its additions is TD3+BC: every bit of it."""

from typing import Any

import pytest

from learners import Learning, differences, start, tiny_algorithm
from understudy.core.state import State, capture

NETWORK: dict[str, Any] = {"hidden": [16, 16], "init": "default", "layer_norm": False}
RATES = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
UPDATES = 41


def trained(name: str, **changes: Any) -> Learning:
    learning = start(tiny_algorithm(name, NETWORK, **changes), seed=3)
    learning.update(UPDATES)
    return learning


def state(name: str, **changes: Any) -> State:
    return capture(trained(name, **RATES, **changes))


ADDITIONS_OFF = {"actor_penalty": 0.5, "critic_penalty": 0.0, "policy_critic": "first"}
"""The data has two action dimensions: β₁ = 1/(α·A) with α = 1."""


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_rebrac_without_its_additions_is_td3bc(delay: int) -> None:
    """Also under `normalize_q`, which both have."""
    plain = state("td3bc", alpha=1.0, policy_delay=delay)
    assert differences(plain, state("rebrac", **ADDITIONS_OFF, policy_delay=delay)) == []
    assert differences(plain, capture(start(tiny_algorithm("td3bc", NETWORK), seed=3))) != []


@pytest.mark.parametrize(
    "left_on",
    [
        {"actor_penalty": 0.51},
        {"critic_penalty": 1e-3},
        {"policy_critic": "min"},
        {"normalize_q": False},
        {"critic": {**NETWORK, "layer_norm": True}},
        {"critic": {**NETWORK, "init": "small_output"}},
    ],
    ids=str,
)
def test_any_addition_left_on_is_something_else(left_on: dict[str, Any]) -> None:
    found = state("rebrac", **{**ADDITIONS_OFF, **left_on})
    assert differences(state("td3bc", alpha=1.0), found) != []


def actor(learning: Learning) -> State:
    return capture(learning.algorithm.policy)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_td3bc_without_its_value_is_cloning(dropout: float) -> None:
    """α = 0 and no delay: the same squared error from the same stream, whatever the critics say."""
    shape = {**NETWORK, "dropout": dropout, "distribution": "deterministic"}
    cloned = trained("bc", learning_rate=1e-3, actor=shape)
    reduced = trained("td3bc", alpha=0.0, policy_delay=1, actor=shape, **RATES)
    assert differences(actor(cloned), actor(reduced)) == []
    for left_on in ({"alpha": 1e-3, "policy_delay": 1}, {"alpha": 0.0, "policy_delay": 2}):
        assert differences(actor(cloned), actor(trained("td3bc", actor=shape, **RATES, **left_on))) != []


@pytest.mark.parametrize("name", ["td3bc", "rebrac"])
@pytest.mark.parametrize(
    "change",
    [{"gamma": 0.9}, {"polyak": 0.1}, {"policy_delay": 3}, {"target_noise": 0.1}, {"target_noise_clip": 0.05}],
    ids=str,
)
def test_every_shared_knob_is_connected(name: str, change: dict[str, Any]) -> None:
    assert differences(state(name), state(name, **change)) != []
