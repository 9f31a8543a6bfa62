"""O-11 to O-17: what conservative penalties do to values, on tables."""

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from t30 import BEST_VALUE, GAMMA, t30
from torch import Tensor

from understudy.losses.conservative import exact_gap, mean_gap, sampled_log_sum_exp
from understudy.losses.value import bootstrap_target, squared_error

POLICY = torch.tensor([[0.2, 0.8], [0.9, 0.1], [0.6, 0.4]], dtype=torch.float64)
TENTHS = torch.tensor([[0] * 2 + [1] * 8, [0] * 9 + [1], [0] * 6 + [1] * 4])
"""The same policy as ten actions of each state [S, 10]."""
POLICY_Q = [0.904095, 0.948286, 1.0, 1.045503, 1.422751, 0.5]


def newton(loss: Callable[[Tensor], Tensor], start: Tensor, steps: int = 1) -> Tensor:
    """The table where a smooth convex loss is least."""
    flat = start.flatten()
    for _ in range(steps):
        slope = torch.func.grad(lambda x: loss(x.view_as(start)))(flat)
        curvature = torch.func.hessian(lambda x: loss(x.view_as(start)))(flat)
        flat = flat - torch.linalg.solve(curvature, slope)
    return flat.view_as(start)


@cache
def evaluated(weight: float, *, data_term: bool = True) -> Tensor:
    """Q̂ [S, A] where ½ squared error and α·(E_π Q − Q(s,a)) balance on T30."""
    rows = t30()
    q = torch.zeros(3, 2, dtype=torch.float64)
    for _ in range(130):
        target = bootstrap_target(rows.reward, GAMMA, rows.terminated, (POLICY * q).sum(1)[rows.next_state])

        def loss(table: Tensor, target: Tensor = target) -> Tensor:
            of_policy = table[rows.state.unsqueeze(0), TENTHS[rows.state].T].unsqueeze(0)
            q_data = table[rows.state, rows.action].unsqueeze(0)
            gap = mean_gap(of_policy, q_data if data_term else torch.zeros_like(q_data))
            return (0.5 * squared_error(q_data, target) + weight * gap).mean()

        q = newton(loss, q)
    return q


@pytest.mark.parametrize(
    ("weight", "value"),
    [
        (0.0, [0.939448, 1.004550, 1.053651]),
        (0.1, [0.682838, 0.917455, 0.884366]),
        (0.5, [-0.343600, 0.569076, 0.207228]),
    ],
)
def test_values_of_a_policy_are_bounded_from_below(weight: float, value: list[float]) -> None:
    """O-11."""
    assert (POLICY * evaluated(weight)).sum(1).tolist() == pytest.approx(value, abs=2e-6)


def test_without_the_data_term_every_action_is_bounded() -> None:
    """O-12."""
    found = evaluated(0.5, data_term=False).flatten().tolist()
    assert found == pytest.approx([-0.178168, -1.889266, 0.1, -1.292341, -1.196171, 0.25], abs=2e-6)
    assert all(low <= high for low, high in zip(found, POLICY_Q, strict=True))


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(1.0, [1.070562, 0.475143, -0.348804]), (5.0, [1.114658, 0.453889, -0.549613])],
)
@pytest.mark.parametrize("half", [0.5, 1.0])
def test_bandit(weight: float, expected: list[float], half: float) -> None:
    """O-13: without the ½ the same weight counts half."""
    reward, share = torch.tensor([1.0, 0.5, 0.0]).double(), torch.tensor([0.6, 0.3, 0.1]).double()
    arms = torch.arange(3)

    def loss(table: Tensor) -> Tensor:
        gap = exact_gap(table.expand(1, 3, 3), arms)[0]
        return (share * (half * (table - reward).square() + 2 * half * weight * gap)).sum()

    assert newton(loss, torch.zeros(3).double(), 30).tolist() == pytest.approx(expected, abs=2e-6)


@cache
def greedy_q(weight: float) -> Tensor:
    """Q [S, A] of discrete CQL(H) with a max backup on T30."""
    rows = t30()
    q = torch.zeros(3, 2, dtype=torch.float64)
    for _ in range(130):
        target = bootstrap_target(rows.reward, GAMMA, rows.terminated, q.amax(1)[rows.next_state])

        def loss(table: Tensor, target: Tensor = target) -> Tensor:
            gap = exact_gap(table[rows.state].unsqueeze(0), rows.action)
            error = squared_error(table[rows.state, rows.action].unsqueeze(0), target)
            return (0.5 * error + weight * gap).mean()

        q = newton(loss, q, 2)
    return q


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (0.05, [1.208125, 1.259275, 1.007874, 1.325473, 1.438599, 0.532019]),
        (0.5, [1.072587, 0.531796, 1.027536, 1.137792, 0.716818, 0.691462]),
    ],
)
def test_control_on_t30(weight: float, expected: list[float]) -> None:
    """O-14."""
    assert greedy_q(weight).flatten().tolist() == pytest.approx(expected, abs=5e-6)


def test_without_a_penalty_it_is_the_best_value() -> None:
    """O-14."""
    assert greedy_q(0.0).amax(1).tolist() == pytest.approx(BEST_VALUE, abs=2e-6)


def test_the_gap_is_at_least_the_entropy_of_the_data() -> None:
    """O-15: H(A|S) of T30 is .601471, reached where softmax(Q) is the data's frequencies."""
    rows = t30()

    def gap(table: Tensor) -> float:
        return float(exact_gap(table[rows.state].unsqueeze(0), rows.action).mean())

    frequencies = torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.2, 0.8]]).double()
    assert gap(frequencies.log() + 7) == pytest.approx(0.601471, abs=1e-6)
    assert gap(greedy_q(0.5)) == pytest.approx(0.672203, abs=2e-6)
    for seed in range(20):
        table = 3 * torch.randn(3, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert gap(table) >= 0.601471


def test_an_action_never_seen_falls_without_bound() -> None:
    """O-16: its only gradient is the softmax's, which never ends."""
    table, reward, share = torch.full((3,), 3.0).double(), torch.tensor([1.0, 0.5, 2.0]), torch.tensor([0.5, 0.5, 0.0])
    marks = []
    for step in range(4000):
        table = table.detach().requires_grad_()
        gap = exact_gap(table.expand(1, 3, 3), torch.arange(3))[0]
        (slope,) = torch.autograd.grad((share * (0.5 * (table - reward).square() + gap)).sum(), table)
        table = table - 0.05 * slope
        if step % 1000 == 999:
            marks.append(float(table.detach()[2]))
    assert marks == sorted(marks, reverse=True)
    assert marks[-1] < -2.5
    assert marks[-2] - marks[-1] > 0.1


def test_importance_sampled_integral() -> None:
    """O-17: ∫ exp(−a²) over [-1, 1] is 1.493648."""
    actions = 2 * torch.rand((1000, 200), generator=torch.Generator().manual_seed(0)) - 1
    log_density = torch.full_like(actions, -math.log(2.0))
    found = sampled_log_sum_exp(-actions.square().unsqueeze(0), log_density)
    assert float((found - 0.401222).abs().max()) < 0.03
    left_in = sampled_log_sum_exp(-actions.square().unsqueeze(0), log_density, subtract_log_n=False)
    torch.testing.assert_close(left_in - found, torch.full_like(found, math.log(1000)))
