"""TD3+BC and ReBRAC as whole classes against fixed points known in closed form."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from learners import CPU
from understudy import Box, Dataset, Episode, Transitions
from understudy.algorithms import find_algorithm
from understudy.core.protocols import BuildContext

SHAPE: dict[str, Any] = {"hidden": [16], "init": "default", "layer_norm": False}
ACTIONS = (-0.3, 0.5)
"""What the data did, in turn: the mean is m = 0.1."""


def one_state(reward: float = 1.0, steps: int = 40) -> Dataset:
    """One state forever, two actions in turn; the world was only ever cut."""
    actions = np.array([ACTIONS[step % 2] for step in range(steps)], np.float32)[:, None]
    episode = Episode(
        {"state": np.ones((steps + 1, 1), np.float32)}, actions, np.full(steps, reward, np.float32), False, True
    )
    return Dataset.from_episodes([episode], Box((-1.0,), (1.0,)), name="one state")


def algorithm(name: str, dataset: Dataset, **changes: Any) -> tuple[Any, Transitions]:
    """The class, and all of the data as one batch; so only the fixed point decides."""
    settings = {"actor": SHAPE, "critic": SHAPE, "policy_delay": 1, "polyak": 0.2, "target_noise": 0.0, **changes}
    module = find_algorithm(name)
    built: Any = module.build(module.Config.parse(settings), BuildContext(dataset.spec, 1, 0, CPU))
    return built, dataset.rows(torch.arange(dataset.steps), built.demand)


def linear_critics(built: Any, *lines: tuple[float, float]) -> None:
    """Critics that say Q_j = b_j + k_j·a exactly: two hidden units hold 2 + a and 2 − a, which are never negative."""
    for layer in built.critic.trunk.layers():
        layer.weight.zero_()
        layer.bias.zero_()
    hidden, output = built.critic.trunk.layers()
    for member, (level, slope) in enumerate(lines):
        hidden.weight[member, 1, 0], hidden.weight[member, 1, 1] = 1.0, -1.0
        hidden.bias[member, 0, :2] = 2.0
        output.weight[member, 0, 0], output.weight[member, 1, 0] = slope / 2, -slope / 2
        output.bias[member, 0, 0] = level


def action_after(built: Any, batch: Transitions, updates: int) -> float:
    for _ in range(updates):
        built.update(batch)
    return float(built.policy.act({"state": torch.ones(1, 1)}, (), greedy=True)[0])


STILL = {"critic_learning_rate": 1e-30, "actor_learning_rate": 1e-2}


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.0, 0.1), (0.5, 0.243398), (2.0, 0.580625)],
)
def test_td3bc_stops_where_the_slopes_of_value_and_distance_meet(alpha: float, expected: float) -> None:
    """Q₁ = 3 + 2a, data mean m = .1: 2(π − m) = α·2/(3 + 2π), so 2π² + 2.8π − (.3 + α) = 0. Q₂ must not matter."""
    built, batch = algorithm("td3bc", one_state(), alpha=alpha, **STILL)
    linear_critics(built, (3.0, 2.0), (-20.0, -7.0))
    assert 2 * expected**2 + 2.8 * expected - (0.3 + alpha) == pytest.approx(0, abs=1e-5)
    assert action_after(built, batch, 400) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(
    ("penalty", "expected", "critics"),
    [(1.0, 0.367708, 2), (0.5, 0.580625, 2), (1000.0, 0.100312, 2), (1.0, 0.367708, 3), (1.0, 0.367708, 4)],
)
def test_rebrac_stops_there_for_the_smallest_critic(penalty: float, expected: float, critics: int) -> None:
    """min(3 + 2a, 5 − a/2, …) = 3 + 2a up to a = .8; β₁ = 1/α of one dimension."""
    changes = {"actor_penalty": penalty, "critic_penalty": 0.0, "critics": critics, **STILL}
    built, batch = algorithm("rebrac", one_state(), **changes)
    linear_critics(built, *[(5.0, -0.5), (3.0, 2.0), (9.0, 1.0), (6.0, -1.0)][:critics])
    assert 2 * expected**2 + 2.8 * expected - (0.3 + 1 / penalty) == pytest.approx(0, abs=1e-4)
    assert action_after(built, batch, 400) == pytest.approx(expected, abs=2e-4)


def standing_policy(built: Any) -> None:
    """π(s) = 0 for the actor and its target."""
    for network in (built.policy, built.policy_target.network):
        network.trunk.layers()[-1].weight.zero_()
        network.trunk.layers()[-1].bias.zero_()


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [(0.0, 2.0), (0.4, 1.932), (2.0, 1.66)],
)
def test_values_of_a_policy_that_stands_still(penalty: float, expected: float) -> None:
    """r = 1, γ = ½, π = 0: Q(s, 0) = (1 − γ·β₂·d')/(1 − γ), with d' = (.09 + .25)/2 = .17.

    Every row here was action 0, and what comes next is one of two, so the critics learn the mean.
    """
    built, batch = algorithm(
        "rebrac", one_state(), gamma=0.5, critic_penalty=penalty, actor_learning_rate=1e-30, critic_learning_rate=1e-2
    )
    standing_policy(built)
    known = torch.ones_like(batch.extra["next_action_valid"])
    blind = replace(
        batch,
        action=torch.zeros_like(batch.action),
        extra={**batch.extra, "next_action_valid": known, "next_action": batch.action},
    )
    for _ in range(300):
        built.update(blind)
    assert (1 - 0.5 * penalty * 0.17) / 0.5 == pytest.approx(expected, abs=1e-6)
    values = built.critic(torch.ones(1, 1), torch.zeros(1, 1)).detach().flatten()
    assert [float(value) for value in values] == pytest.approx([expected] * 2, abs=5e-3)


@pytest.mark.parametrize("name", ["td3bc", "rebrac"])
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_rewards_in_other_units_give_the_same_actor_loss(name: str, factor: float) -> None:
    """O-37, in the whole class: with Q times c everywhere, the actor's loss and step stay."""
    found = []
    for scale in (1.0, factor):
        built, batch = algorithm(name, one_state(reward=scale), **STILL)
        linear_critics(built, (3.0 * scale, 2.0 * scale), (4.0 * scale, -1.0 * scale))
        found.append((float(built.update(batch).metrics["loss/actor"]), action_after(built, batch, 20)))
    assert found[0] == pytest.approx(found[1], rel=1e-4)
