"""Discrete CQL with a knob off is something known, in every bit."""

from typing import Any

import pytest
import torch
from torch import Tensor

from learners import differences, start, tiny_algorithm
from networks import action_values
from understudy.core.rng import stream
from understudy.core.state import State, capture
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from worlds import random_choices

UPDATES = 30
FLAT = "policy.critic.trunk.flat"


def trained(masked: bool = False, **changes: Any) -> State:
    learning = start(tiny_algorithm("discrete_cql", **changes), random_choices(masked=masked))
    learning.update(UPDATES)
    return capture(learning.algorithm)


def double_dqn() -> list[Tensor]:
    """Critics and targets of double DQN with twin critics, written down without our losses."""
    learning = start(tiny_algorithm("discrete_cql"))
    critic = action_values(3, 4, stream(0, "init/critic"), hidden=[16, 16])
    target, adam = Target.of(critic), Adam.over(critic.parameters())
    for _ in range(UPDATES):
        batch = learning.batch()
        state, next_state = (learning.algorithm.policy.perception.look(obs) for obs in (batch.obs, batch.next_obs))
        rows = torch.arange(len(batch.action))
        with torch.no_grad():
            best = critic.every(next_state).mean(0).argmax(1)
            value = target.network.every(next_state)[:, rows, best].amin(0)
            wanted = torch.where(batch.terminated, batch.reward, batch.reward + 0.99 * value)
        loss = (critic(state, batch.action) - wanted).square().sum(-1).div(len(rows)).sum()
        adam.minimise(loss, 3e-4)
        target.follow(critic, 0.005)
    return [critic.trunk.flat.detach(), target.network.trunk.flat]


def test_alpha_zero_is_double_dqn() -> None:
    found = trained(alpha=0.0)
    critic, target = double_dqn()
    for path, expected in (("policy.critic.trunk.flat", critic), ("target.network.trunk.flat", target)):
        leaf = found[path]
        assert isinstance(leaf, Tensor)
        assert torch.equal(leaf, expected), path
    plain = trained()["policy.critic.trunk.flat"]
    assert isinstance(plain, Tensor)
    assert not torch.equal(plain, critic)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.0},
    {"temperature": 0.5},
    {"penalty": "sampled", "negatives": 2},
    {"policy": "softmax"},
    {"td_loss": "huber"},
    {"td_loss": "quantile", "quantiles": 5},
    {"n_step": 3},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_masks_that_allow_everything_change_no_bit(changes: dict[str, Any]) -> None:
    assert differences(trained(False, **changes), trained(True, **changes)) == []


@pytest.mark.parametrize("changes", VARIANTS[2:])
def test_every_knob_is_connected(changes: dict[str, Any]) -> None:
    assert differences(trained(), trained(**changes)) != []


def test_a_sample_of_all_others_is_the_exact_penalty() -> None:
    exact, sampled = trained(), trained(penalty="sampled", negatives=7)
    torch.testing.assert_close(
        sampled["policy.critic.trunk.flat"], exact["policy.critic.trunk.flat"], rtol=1e-4, atol=1e-5
    )


def test_a_huber_loss_that_never_bends_is_the_squared_error() -> None:
    huber, squared = trained(td_loss="huber", huber_threshold=1e6), trained()
    torch.testing.assert_close(
        huber["policy.critic.trunk.flat"], squared["policy.critic.trunk.flat"], rtol=1e-4, atol=1e-5
    )
