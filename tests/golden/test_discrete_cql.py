"""O-14, O-15, O-21, O-23: discrete CQL on the tabular set T30, its penalty, and masks."""

import math
from functools import cache
from typing import Any

import pytest
import torch
from t30 import BEST_VALUE, GAMMA, Table, t30, t30_choices
from torch import Tensor

from learners import CPU
from understudy.algorithms.discrete_cql import Config, DiscreteCQL, build
from understudy.core.protocols import BuildContext
from understudy.core.spec import ACTION_MASK
from understudy.losses.action_values import double_dqn_value, softmax_climb
from understudy.losses.conservative import exact_gap
from understudy.losses.value import bootstrap_target, mean_over, squared_error

Q_VALUES = {
    0.0: [1.405210, 1.512605, 1.0, 1.561345, 1.680672, 0.5],
    0.05: [1.208125, 1.259275, 1.007874, 1.325473, 1.438599, 0.532019],
    0.5: [1.072587, 0.531796, 1.027536, 1.137792, 0.716818, 0.691462],
}
"""Of the halved temporal difference; not halved, the same at twice the weight. At 0: Q* = r + γ·V*."""
STATES = torch.eye(3)
UPDATES = 1200
LEGAL = torch.tensor([True, True, False]).expand(30, 3)


def table_loss(rows: Table, target: Tensor, alpha: float, q: Tensor) -> Tensor:
    """Our losses on a table [S, 2], and a third action that is not legal and would win."""
    everything = torch.cat([q, torch.full((3, 1), 50.0, dtype=q.dtype)], 1)[rows.state].unsqueeze(0)
    error = squared_error(q[rows.state, rows.action].unsqueeze(0), target)
    penalty = exact_gap(everything, rows.action, LEGAL)
    return (mean_over(error, torch.ones_like(rows.terminated)) + 2 * alpha * penalty.mean(-1)).sum()


def newton(rows: Table, target: Tensor, alpha: float, q: Tensor) -> Tensor:
    """The minimiser, from the whole curvature of the table."""
    for _ in range(2):
        flat = q.detach().flatten().requires_grad_()
        (slope,) = torch.autograd.grad(table_loss(rows, target, alpha, flat.view(3, 2)), flat, create_graph=True)
        curvature = torch.stack([torch.autograd.grad(part, flat, retain_graph=True)[0] for part in slope])
        q = (flat - torch.linalg.solve(curvature, slope)).detach().view(3, 2)
    return q


def fixed_point(alpha: float) -> Tensor:
    """Q [S, A] where target and losses, masked, have nothing left to do."""
    rows, q = t30(), torch.zeros(3, 2, dtype=torch.float64)
    for _ in range(110):
        next_q = torch.cat([q, torch.full((3, 1), 50.0, dtype=q.dtype)], 1)[rows.next_state].unsqueeze(0)
        value = double_dqn_value(next_q, next_q.unsqueeze(-1), LEGAL).squeeze(-1)
        q = newton(rows, bootstrap_target(rows.reward, GAMMA, rows.terminated, value), alpha, q)
    return q


@pytest.mark.parametrize("alpha", Q_VALUES)
def test_action_values(alpha: float) -> None:
    """O-14."""
    assert fixed_point(alpha).flatten().tolist() == pytest.approx(Q_VALUES[alpha], abs=2e-6)


def test_without_a_penalty_they_are_the_best_policys() -> None:
    """O-14, O-5."""
    assert fixed_point(0.0).amax(1).tolist() == pytest.approx(BEST_VALUE, abs=2e-6)


def penalty_on_t30(q: Tensor) -> float:
    rows = t30()
    return float(exact_gap(q[rows.state].unsqueeze(0), rows.action).mean())


def test_the_penalty_is_at_least_the_entropy_of_the_data() -> None:
    """O-15: reached by the logarithm of its frequencies, at any level."""
    frequencies = torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.2, 0.8]], dtype=torch.float64)
    assert penalty_on_t30(frequencies.log() + 17.0) == pytest.approx(0.601471, abs=1e-6)
    assert penalty_on_t30(torch.tensor(Q_VALUES[0.5], dtype=torch.float64).view(3, 2)) == pytest.approx(
        0.672203, abs=1e-6
    )


def test_masked_soft_maximum() -> None:
    """O-21: logits 1, 2, 3; the second is illegal. No slope goes to it."""
    q = torch.tensor([[[1.0, 2.0, 3.0]]], requires_grad=True)
    action, mask = torch.tensor([0]), torch.tensor([[True, False, True]])
    assert float(exact_gap(q.detach(), action, mask)) + 1 == pytest.approx(3.126928, abs=1e-6)
    assert float(exact_gap(q.detach(), action)) + 1 == pytest.approx(3.407606, abs=1e-6)
    (slope,) = torch.autograd.grad(exact_gap(q, action, mask).sum(), q)
    assert slope.flatten().tolist() == pytest.approx([0.119203 - 1, 0.0, 0.880797], abs=1e-6)


def test_the_softmax_policys_optimum() -> None:
    """O-23: Q = 1, 2, 3 and η = ½."""
    q = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    logits = torch.zeros_like(q, requires_grad=True)
    search = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        loss = softmax_climb(logits, q, 0.5).sum()
        torch.autograd.backward(loss)
        return loss

    search.step(closure)  # type: ignore[no-untyped-call]
    assert logits.detach().softmax(1).flatten().tolist() == pytest.approx([0.015876, 0.117310, 0.866813], abs=2e-6)
    assert float(-closure().detach()) == pytest.approx(3.071466, abs=1e-6)


@cache
def learned(**changes: Any) -> DiscreteCQL:
    """The whole class on full batches, with masks."""
    dataset = t30_choices()
    network: dict[str, Any] = {"hidden": [32]}
    rates = {"critic_learning_rate": 1e-2, "actor_learning_rate": 1e-2}
    config = Config.parse({"gamma": GAMMA, "polyak": 0.1, "actor": network, "critic": network, **rates, **changes})
    algorithm = build(config, BuildContext(dataset.spec, UPDATES, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    assert not bool(batch.extra["next_mask"][batch.terminated].any())
    for _ in range(UPDATES):
        metrics = algorithm.update(batch).metrics
    assert all(math.isfinite(float(value)) for value in metrics.values())
    return algorithm


def chosen(algorithm: DiscreteCQL) -> list[int]:
    """What the policy does in the three states."""
    action, _ = algorithm.policy.act({"state": STATES, ACTION_MASK: LEGAL[:3]}, (), greedy=True)
    return [int(number) for number in action]


@pytest.mark.parametrize("alpha", Q_VALUES)
def test_the_whole_class_finds_the_numbers(alpha: float) -> None:
    """O-14, O-21: every member and the target, with the third action forbidden and empty masks after terminal rows."""
    algorithm = learned(alpha=2 * alpha)
    for critic in (algorithm.critic, algorithm.target.network):
        for member in critic.every(STATES):
            assert member[:, :2].detach().flatten().tolist() == pytest.approx(Q_VALUES[alpha], abs=0.02)


def test_the_deployed_policy_is_greedy_in_these_values() -> None:
    """The penalty at α = 0.5 makes another action best in the first state; forbidden ones never are."""
    assert chosen(learned(alpha=0.0)) == [1, 1, 0]
    assert chosen(learned(alpha=1.0)) == [0, 1, 0]


def test_quantiles_are_those_of_the_return() -> None:
    """α = 0. (2, 0) ends with 2 half of the time, or comes back after two steps: 2 at best, then 2γ² and less."""
    algorithm = learned(alpha=0.0, td_loss="quantile", quantiles=10, critics=1, huber_threshold=0.05)
    outcomes = algorithm.critic.outcomes(STATES)[0].detach()
    *_, third, second = outcomes[2, 0].sort().values[:5].tolist()
    assert outcomes[2, 0].sort().values[5:].tolist() == pytest.approx([2.0] * 5, abs=0.1)
    assert [second, third] == pytest.approx([2 * GAMMA**2] * 2, abs=0.1)
    assert outcomes[1, 0].tolist() == pytest.approx([1.0] * 10, abs=0.1)
    assert outcomes[2, 1].tolist() == pytest.approx([0.5] * 10, abs=0.1)


def test_a_softmax_policy_learns_what_the_greedy_one_does() -> None:
    """α = 0 and η near 0: the policy that climbs its own values finds the best one's."""
    algorithm = learned(alpha=0.0, policy="softmax")
    values = algorithm.critic.every(STATES)[0, :, :2].flatten().tolist()
    assert values == pytest.approx(Q_VALUES[0.0], abs=0.03)
    assert chosen(algorithm) == [1, 1, 0]
