"""What IQL's update reads, proved by changing one thing and looking at who notices."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy import Dataset, Discrete, Episode, Transitions
from understudy.core.protocols import Metrics

ACTOR, VALUE, CRITIC = "policy", "value", "critic"


def first_metrics(**changes: Any) -> Metrics:
    return start(tiny_algorithm("iql", **changes)).update()


def weights(learning: Learning, network: str) -> Tensor:
    """Every number that is trained in a network, as it is now."""
    return torch.cat([parameter.detach().flatten() for parameter in getattr(learning.algorithm, network).parameters()])


def raised(member: int, by: float) -> Learning:
    """One update after one target critic's output was raised everywhere."""
    learning = start(tiny_algorithm("iql"))
    learning.algorithm.target.network.trunk.layers()[-1].bias[member] += by
    learning.update()
    return learning


def test_only_the_smaller_target_critic_counts() -> None:
    for member in (0, 1):
        high, higher = raised(member, 1e3), raised(member, 2e3)
        for network in (VALUE, ACTOR, CRITIC):
            assert torch.equal(weights(high, network), weights(higher, network))
    assert not torch.equal(weights(raised(0, 1e3), VALUE), weights(raised(1, 1e3), VALUE))


def test_advantage_and_critic_target_use_the_value_after_its_step() -> None:
    slow, fast = (first_metrics(value_learning_rate=rate) for rate in (1e-4, 1e-2))
    assert torch.equal(slow["loss/value"], fast["loss/value"])
    for name in ("value/advantage", "loss/actor", "loss/critic"):
        assert not torch.equal(slow[name], fast[name])


def test_the_advantage_comes_from_target_critics_of_before_the_update() -> None:
    slow, fast = (first_metrics(critic_learning_rate=rate, polyak=1.0) for rate in (1e-4, 1e-2))
    for name in slow:
        assert torch.equal(slow[name], fast[name])


def test_the_actor_teaches_nobody() -> None:
    slow, fast = (start(tiny_algorithm("iql", actor_learning_rate=rate)) for rate in (1e-4, 1e-2))
    for learning in (slow, fast):
        learning.update(5)
    assert torch.equal(weights(slow, VALUE), weights(fast, VALUE))
    assert torch.equal(weights(slow, CRITIC), weights(fast, CRITIC))
    assert not torch.equal(weights(slow, ACTOR), weights(fast, ACTOR))


def updated(change: dict[str, Any], td_valid: Tensor) -> Learning:
    learning = start(tiny_algorithm("iql"))
    batch: Transitions = learning.batch()
    learning.algorithm.update(replace(batch, extra={**batch.extra, "td_valid": td_valid}, **change))
    return learning


def test_rows_without_a_successor_are_left_out_of_the_critic() -> None:
    batch = start(tiny_algorithm("iql")).batch()
    half = torch.arange(len(batch.reward)) % 2 == 0
    garbage = {"reward": torch.where(half, batch.reward, 1e6)}
    clean, dirty = updated({}, half), updated(garbage, half)
    for network in (VALUE, ACTOR, CRITIC):
        assert torch.equal(weights(clean, network), weights(dirty, network))
    assert not torch.equal(weights(dirty, CRITIC), weights(updated(garbage, torch.ones_like(half)), CRITIC))


def test_a_terminal_row_ignores_its_successor_and_a_cut_one_does_not() -> None:
    batch = start(tiny_algorithm("iql")).batch()
    elsewhere = {"next_obs": {"state": batch.next_obs["state"] + 10}}
    valid = torch.ones_like(batch.terminated)
    for terminated in (True, False):
        flags = {"terminated": torch.full_like(batch.terminated, terminated)}
        here, there = updated(flags, valid), updated({**flags, **elsewhere}, valid)
        assert torch.equal(weights(here, CRITIC), weights(there, CRITIC)) == terminated


def test_the_cosine_ends_with_the_run_and_no_other_rate_does() -> None:
    learning = start(tiny_algorithm("iql"), updates=10)
    learning.update(10)
    before = {name: weights(learning, name) for name in (ACTOR, VALUE, CRITIC)}
    learning.update()
    moved = {name: not torch.equal(before[name], weights(learning, name)) for name in before}
    assert moved == {ACTOR: False, VALUE: True, CRITIC: True}


@pytest.mark.parametrize("name", ["iql", "ciql", "discrete_cql"])
def test_critics_that_read_the_action_learn_what_critics_with_outputs_learn(name: str) -> None:
    """A bandit of four actions that pay 0, 1, 2 and 3: both forms find the values."""
    states = np.random.default_rng(0).standard_normal((200, 2, 1)).astype(np.float32)
    episodes = [
        Episode({"state": seen}, np.array([row % 4]), np.array([row % 4], np.float32), True, False)
        for row, seen in enumerate(states)
    ]
    data = Dataset.from_episodes(episodes, Discrete(4), name="bandit")
    for form in ("heads", "onehot"):
        plain: dict[str, Any] = {} if name == "iql" else {"alpha": 0.0}
        config = tiny_algorithm(name, critic_learning_rate=1e-2, polyak=0.1, critic_input=form, **plain)
        learning = start(config, data)
        learning.update(500)
        values = learning.algorithm.critic.every(torch.linspace(-1, 1, 9).unsqueeze(1)).detach()
        assert torch.allclose(values, torch.arange(4.0).expand_as(values), atol=0.2), form
