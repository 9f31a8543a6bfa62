"""Conservative penalties against integrals, enumeration, limits and finite differences."""

import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor

from understudy.losses.conservative import (
    calibrated,
    constraint,
    cql_h_gap,
    cql_rho_gap,
    exact_gap,
    mean_gap,
    relu_mean,
    sampled_gap,
    sampled_log_sum_exp,
    sampled_seed_gap,
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_densities_are_weights_and_temperature_does_not_divide_them(temperature: float) -> None:
    """∫ exp(Q/T) over [-1, 1] for Q = a, from exact quantiles of two different densities; (e^{1/T} − e^{−1/T})·T."""
    share = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    truth = temperature * math.log(temperature * 2 * math.sinh(1 / temperature))
    flat = 2 * share - 1
    skewed = 2 * share.sqrt() - 1  # density (1 + a)/2
    for action, log_density in ((flat, torch.full_like(flat, -math.log(2.0))), (skewed, ((1 + skewed) / 2).log())):
        found = sampled_log_sum_exp(action.view(1, -1, 1), log_density.view(-1, 1), temperature)
        assert float(found) == pytest.approx(truth, abs=2e-3)


def test_leaving_ln_n_in_shifts_by_it_and_changes_no_slope() -> None:
    q, log_density, q_data = numbers(2, 30, 4).requires_grad_(), numbers(30, 4), numbers(2, 4)
    with_it, without = (cql_h_gap(q, log_density, q_data, 2.0, subtract_log_n=how) for how in (False, True))
    torch.testing.assert_close(with_it - without, torch.full_like(without, 2.0 * 3.401197))
    slopes = [torch.autograd.grad(gap.sum(), q, retain_graph=True)[0] for gap in (with_it, without)]
    torch.testing.assert_close(slopes[0], slopes[1])


def test_the_slope_is_a_distribution_over_actions_minus_the_datas() -> None:
    q, q_data = numbers(2, 30, 4).requires_grad_(), numbers(2, 4).requires_grad_()
    gap = cql_h_gap(q, numbers(30, 4, seed=1), q_data)
    up, down = torch.autograd.grad(gap.sum(), (q, q_data))
    assert bool((up > 0).all())
    torch.testing.assert_close(up.sum(1), torch.ones(2, 4, dtype=torch.float64))
    assert bool((down == -1).all())


def test_toward_zero_temperature_it_is_the_maximum() -> None:
    q, q_data = numbers(2, 9, 5), numbers(2, 5)
    gap = cql_h_gap(q, numbers(9, 5), q_data, 1e-4)
    torch.testing.assert_close(gap, q.amax(1) - q_data, atol=2e-3, rtol=0)


@pytest.mark.parametrize(("count", "mean", "spread"), [(10, -2.426, 1.49), (100, -1.582, None)])
def test_few_samples_underestimate(count: int, mean: float, spread: float | None) -> None:
    """Q = −5‖a‖² in six dimensions: truth −1.404; Jensen takes one from it at N = 10."""
    assert 6 * math.log(math.sqrt(math.pi / 5) * math.erf(math.sqrt(5))) == pytest.approx(-1.404, abs=1e-3)
    rng = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand((count, 20_000, 6), generator=rng) - 1
    q = -5 * actions.square().sum(-1).unsqueeze(0)
    found = sampled_log_sum_exp(q, torch.full((count, 20_000), -6 * math.log(2.0)))
    assert float(found.mean()) == pytest.approx(mean, abs=0.05)
    assert spread is None or float(found.std()) == pytest.approx(spread, abs=0.05)


def test_rho_counts_the_datas_action_and_is_never_negative() -> None:
    q, q_data = 50 * numbers(2, 30, 100), 50 * numbers(2, 100, seed=1)
    gap = cql_rho_gap(q, q_data, subtract_log_n=False)
    assert bool((gap >= 0).all())
    alone = cql_rho_gap(torch.full((1, 1, 1), -1e6), torch.zeros(1, 1), subtract_log_n=False)
    assert float(alone) == 0.0
    sharp = cql_rho_gap(q, q_data, 1e-3, subtract_log_n=False)
    torch.testing.assert_close(sharp, torch.relu(q.amax(1) - q_data), atol=0.01, rtol=0)
    equal = cql_rho_gap(torch.ones(1, 30, 1), torch.ones(1, 1))
    assert float(equal) == pytest.approx(0.0, abs=1e-6), "with ln N it is a mean"


def test_exact_gap_by_hand() -> None:
    """O-15 and O-21: ten actions; three logits of which one is forbidden."""
    q = torch.zeros(1, 1, 10)
    q[..., 0] = 10.0
    assert float(exact_gap(q, torch.tensor([0]))) == pytest.approx(0.000409, abs=1e-6)
    three, action = torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([0])
    legal = torch.tensor([[True, False, True]])
    assert float(exact_gap(three, action, legal)) == pytest.approx(2.126928, abs=1e-6)
    assert float(exact_gap(three, action)) == pytest.approx(2.407606, abs=1e-6)


def test_exact_gap_is_never_negative_and_blind_to_constants() -> None:
    q, action = 100 * numbers(2, 500, 7).float(), torch.arange(500) % 7
    mask = numbers(500, 7, seed=2) > 0
    mask[torch.arange(500), action] = True
    for legal in (mask, None):
        gap = exact_gap(q, action, legal, 0.7)
        assert bool((gap >= 0).all())
        torch.testing.assert_close(exact_gap(q + 64.0, action, legal, 0.7), gap, atol=1e-3, rtol=1e-4)


def test_forbidden_actions_are_not_touched() -> None:
    q = numbers(2, 3, 4).requires_grad_()
    mask = torch.tensor([[True, True, False, False]] * 3)
    gap = exact_gap(q, torch.tensor([0, 1, 0]), mask)
    (slope,) = torch.autograd.grad(gap.sum(), q)
    assert not slope[..., 2:].any()
    assert slope[..., :2].all()
    poisoned = torch.where(mask, q.detach(), 1e30)
    torch.testing.assert_close(exact_gap(poisoned, torch.tensor([0, 1, 0]), mask), gap.detach())


def test_one_legal_action_leaves_no_gap() -> None:
    mask = torch.tensor([[False, True, False]])
    assert float(exact_gap(torch.tensor([[[9.0, -3.0, 4.0]]]), torch.tensor([1]), mask)) == 0.0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_all_other_actions_sampled_is_exact(temperature: float) -> None:
    q = 3 * numbers(2, 4, 6)
    action, choices = torch.tensor([0, 5, 2, 2]), torch.full((4,), 6)
    others = torch.stack([torch.cat([q[:, b, :a], q[:, b, a + 1 :]], -1) for b, a in enumerate(action.tolist())], -1)
    found = sampled_gap(others, q[:, torch.arange(4), action], choices, temperature)
    torch.testing.assert_close(found, exact_gap(q, action, None, temperature))


def test_sampled_sums_are_unbiased_over_all_draws() -> None:
    """exp of the gap, averaged over every way to draw two of four others, is exp of the exact gap."""
    q, action = numbers(1, 1, 5), torch.tensor([3])
    others = q[0, 0, [0, 1, 2, 4]]
    draws = [others[list(pair)].view(1, 2, 1) for pair in combinations(range(4), 2)]
    found = [float(sampled_gap(draw, q[:, :, 3], torch.tensor([5])).exp()) for draw in draws]
    assert sum(found) / len(found) == pytest.approx(float(exact_gap(q, action).exp()), rel=1e-12)


def test_sampled_gap_is_never_negative_and_knows_short_rows() -> None:
    q, q_data = 100 * numbers(2, 4, 300), 100 * numbers(2, 300, seed=1)
    assert bool((sampled_gap(q, q_data, torch.full((300,), 1000)) >= 0).all())
    drawn = torch.tensor([[True, False], [True, False], [False, False]])
    short = sampled_gap(torch.full((1, 3, 2), 2.0), torch.zeros(1, 2), torch.tensor([3, 1]), 1.0, drawn)
    assert short[0].tolist() == pytest.approx([math.log(1 + 2 * math.e**2), 0.0], rel=1e-6)


def test_the_seed_form_rewards_the_data_without_limit() -> None:
    """Q = (10, 0 × 9), ten draws with replacement: negative 35 % of the time, −2.47 on average; truth 0."""
    mean = 0.0
    for hits in range(11):
        chance = math.comb(10, hits) * 0.1**hits * 0.9 ** (10 - hits)
        drawn = torch.tensor([10.0] * hits + [0.0] * (10 - hits)).view(1, 10, 1)
        gap = float(sampled_seed_gap(drawn, torch.full((1, 1), 10.0)))
        mean += chance * gap
        if hits == 0:
            assert chance == pytest.approx(0.35, abs=0.002)
            assert gap == pytest.approx(-7.70, abs=0.005)
    assert mean == pytest.approx(-2.47, abs=0.005)


def test_mean_gap_and_relu_mean_by_hand() -> None:
    q, q_data = (
        torch.tensor([[[1.0, 5.0], [3.0, 7.0]], [[0.0, 0.0], [0.0, 0.0]]]),
        torch.tensor([[1.0, 4.0], [1.0, 2.0]]),
    )
    assert mean_gap(q, q_data).tolist() == [[1.0, 2.0], [-1.0, -2.0]]
    assert relu_mean(q, q_data).tolist() == [1.5, 0.0]


def test_relu_mean_has_no_slope_once_the_means_have_crossed() -> None:
    q = torch.zeros(1, 3, 4, requires_grad=True)
    for level, slope in ((1.0, 0.0), (-1.0, 1 / 12)):
        (found,) = torch.autograd.grad(relu_mean(q, torch.full((1, 4), level)).sum(), q)
        torch.testing.assert_close(found, torch.full_like(found, slope))


def test_both_lagrange_forms() -> None:
    gap = torch.tensor([[3.0]])
    assert float(constraint(gap, 10.0, 5.0, "weight_outside")) == -20.0
    assert float(constraint(gap, 10.0, 5.0, "weight_inside")) == 25.0
    assert torch.equal(constraint(gap, 1.0, 5.0, "weight_outside"), constraint(gap, 1.0, 5.0, "weight_inside"))


def test_gradients_are_slopes() -> None:
    q, q_data, log_density = numbers(2, 5, 3).requires_grad_(), numbers(2, 3).requires_grad_(), numbers(5, 3)
    action, mask = torch.tensor([0, 2, 1]), torch.tensor([[True, False, True], [True] * 3, [False, True, True]])
    assert torch.autograd.gradcheck(lambda x, y: cql_h_gap(x, log_density, y, 0.7), (q, q_data))
    assert torch.autograd.gradcheck(lambda x, y: cql_rho_gap(x, y, 0.7), (q, q_data))
    assert torch.autograd.gradcheck(lambda x, y: sampled_gap(x, y, torch.tensor([9, 6, 7]), 0.7), (q, q_data))
    table = numbers(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: exact_gap(x, action, mask, 0.7), table)


ROW, DRAWS = torch.ones(2, 5), torch.ones(2, 3, 5)
MISFITS: dict[str, Callable[[], Tensor]] = {
    "density of another shape": lambda: sampled_log_sum_exp(DRAWS, torch.ones(5, 3)),
    "data without critics": lambda: cql_h_gap(DRAWS, torch.ones(3, 5), torch.ones(5)),
    "rho": lambda: cql_rho_gap(DRAWS, torch.ones(2, 1)),
    "sampled": lambda: sampled_gap(DRAWS, torch.ones(2, 4), torch.ones(5)),
    "choices": lambda: sampled_gap(DRAWS, ROW, torch.ones(5, 1)),
    "drawn": lambda: sampled_gap(DRAWS, ROW, torch.ones(5), 1.0, torch.ones(3, 1).bool()),
    "exact, column action": lambda: exact_gap(torch.ones(2, 5, 3), torch.zeros(5, 1).long()),
    "exact, mask": lambda: exact_gap(torch.ones(2, 5, 3), torch.zeros(5).long(), torch.ones(3).bool()),
    "seed": lambda: sampled_seed_gap(DRAWS, torch.ones(5)),
    "mean": lambda: mean_gap(DRAWS, torch.ones(2, 5, 1)),
    "relu": lambda: relu_mean(DRAWS, torch.ones(5)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_nothing_broadcasts(name: str) -> None:
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        MISFITS[name]()


def test_densities_are_constants() -> None:
    with pytest.raises(ValueError, match="log_density carries gradient"):
        sampled_log_sum_exp(DRAWS, torch.ones(3, 5, requires_grad=True))


def test_calibrated_values_of_the_policy_are_not_below_what_was_earned() -> None:
    """Of one uniform action and two of the policy, in a row that earned 1 and in one of which nobody knows."""
    q = torch.tensor([[[-5.0, -5.0], [0.5, 0.5], [3.0, 3.0]]], dtype=torch.float64, requires_grad=True)
    raised = calibrated(q, torch.tensor([1.0, -math.inf], dtype=torch.float64), 1)
    assert raised.tolist() == [[[-5.0, -5.0], [1.0, 0.5], [3.0, 3.0]]]
    (slope,) = torch.autograd.grad(raised.sum(), q)
    assert slope.tolist() == [[[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]]]
