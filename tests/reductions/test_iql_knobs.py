"""IQL settings that must be the same thing written twice."""

from typing import Any

import pytest
import torch

from learners import Learning, differences, start, tiny_algorithm
from understudy.core.state import State, capture


def state_after(learning: Learning, updates: int = 20) -> State:
    learning.update(updates)
    return capture(learning)


def trained(**changes: Any) -> State:
    return state_after(start(tiny_algorithm("iql", **changes)))


@pytest.mark.parametrize(
    "spelled_out", [{"n_step": 1}, {"expectile": 0.7, "beta": 3.0, "weight_ceiling": 100.0}, {"gamma": 0.99}]
)
def test_a_default_spelled_out_changes_no_bit(spelled_out: dict[str, Any]) -> None:
    assert differences(trained(), trained(**spelled_out)) == []


@pytest.mark.parametrize(
    "change",
    [{"n_step": 3}, {"expectile": 0.8}, {"beta": 2.0}, {"weight_ceiling": 1.01}, {"gamma": 0.9}, {"polyak": 0.1}],
)
def test_every_knob_is_connected(change: dict[str, Any]) -> None:
    assert differences(trained(), trained(**change)) != []


def test_one_step_windows_are_plain_rows() -> None:
    """The n-step gather with n = 1 is never used; with n = 3 its rewards differ and its observations do not."""
    one, three = (start(tiny_algorithm("iql", n_step=n)).batch() for n in (1, 3))
    assert torch.equal(one.obs["state"], three.obs["state"])
    assert torch.equal(one.action, three.action)
    assert not torch.equal(one.reward, three.reward)
    assert not torch.equal(one.extra["discount"], three.extra["discount"])


def test_without_a_future_critics_do_not_know_the_expectile() -> None:
    """γ = 0: Q regresses on rewards alone, while V still rises with τ."""
    low, high = (start(tiny_algorithm("iql", expectile=tau, gamma=0.0)) for tau in (0.5, 0.9))
    for learning in (low, high):
        learning.update(200)
    assert torch.equal(low.algorithm.critic.trunk.flat, high.algorithm.critic.trunk.flat)
    state = low.algorithm.policy.perception.look(low.batch().obs)
    with torch.no_grad():
        means = [float(learning.algorithm.value(state).mean()) for learning in (low, high)]
    assert means[1] > means[0] + 0.05
