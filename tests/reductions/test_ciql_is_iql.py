"""CIQL with α = 0 is IQL in every bit: the same networks, optimisers and targets, whatever the penalty would be."""

from collections.abc import Callable
from typing import Any

import pytest

from choosing import choices
from learners import Learning, differences, start, tiny_algorithm
from understudy import Dataset
from understudy.core.state import State, capture
from worlds import random_dataset

UPDATES = 20


WORLDS: dict[str, Callable[[], Dataset]] = {
    "continuous": random_dataset,
    "discrete": lambda: choices(False),
    "masked": lambda: choices(True),
}


def state_after(name: str, world: str, **changes: Any) -> State:
    """What both algorithms have: CIQL also has streams to draw actions from."""
    learning: Learning = start(tiny_algorithm(name, **changes), WORLDS[world](), seed=3)
    learning.update(UPDATES)
    return {path: leaf for path, leaf in capture(learning).items() if not path.startswith("algorithm.proposals.")}


@pytest.mark.parametrize("world", WORLDS)
def test_no_penalty_is_iql_to_the_bit(world: str) -> None:
    assert differences(state_after("iql", world), state_after("ciql", world, alpha=0.0)) == []


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("penalty", ["cql_h", "mean_gap"])
def test_a_penalty_is_something_else(world: str, penalty: str) -> None:
    changed = differences(state_after("iql", world), state_after("ciql", world, penalty=penalty))
    assert any(path.startswith("algorithm.critic.") for path in changed)
    assert any(path.startswith("algorithm.policy.") for path in changed)


def test_all_of_iql_is_kept_with_other_settings() -> None:
    """Also its options: dropout, layer norm, n-step returns, other weights."""
    settings: dict[str, Any] = {"network": {"dropout": 0.1, "layer_norm": True}, "n_step": 3, "awr_norm": "batch_mean"}
    parent, child = state_after("iql", "masked", **settings), state_after("ciql", "masked", alpha=0.0, **settings)
    assert differences(parent, child) == []
