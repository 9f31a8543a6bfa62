"""Value losses against numbers known without them: limits, derivatives, hand-made batches."""

import math

import pytest
import torch
from torch import Tensor

from understudy.losses.value import (
    absolute_error,
    bootstrap_target,
    expectile_loss,
    mean_over,
    penalised_value,
    squared_error,
)

GRID = torch.linspace(-2.0, 2.0, 41, dtype=torch.float64)


def zeros_like_grid() -> Tensor:
    return torch.zeros_like(GRID)


def test_expectile_one_half_is_half_the_squared_error() -> None:
    torch.testing.assert_close(2 * expectile_loss(zeros_like_grid(), GRID, 0.5), GRID**2)


def test_expectile_by_hand() -> None:
    loss = expectile_loss(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([2.0, -2.0, 1.0]), 0.9)
    torch.testing.assert_close(loss, torch.tensor([3.6, 0.4, 0.0]))


def test_expectile_near_one_forgives_optimism_and_near_zero_pessimism() -> None:
    """The prediction is 0: positive targets mean it was too low."""
    high, low = (expectile_loss(zeros_like_grid(), GRID, tau) for tau in (1 - 1e-9, 1e-9))
    above, below = GRID > 0, GRID < 0
    torch.testing.assert_close(high[above], GRID[above] ** 2)
    torch.testing.assert_close(low[below], GRID[below] ** 2)
    assert high[below].max() < 1e-8
    assert low[above].max() < 1e-8


def test_expectile_mirrors() -> None:
    left = expectile_loss(zeros_like_grid(), GRID, 0.8)
    right = expectile_loss(zeros_like_grid(), -GRID, 0.2)
    torch.testing.assert_close(left, right)


def test_expectile_gradient_is_the_slope_of_the_loss() -> None:
    prediction = GRID.clone().requires_grad_()
    target = torch.full_like(GRID, 0.3)
    assert torch.autograd.gradcheck(lambda value: expectile_loss(value, target, 0.7), prediction)


def test_expectile_loss_vanishes_with_its_gradient_at_the_target() -> None:
    prediction = torch.ones(3, requires_grad=True)
    loss = expectile_loss(prediction, torch.ones(3), 0.9)
    (gradient,) = torch.autograd.grad(loss.sum(), prediction)
    assert not loss.any()
    assert not gradient.any()


@pytest.mark.parametrize("poison", [math.inf, -math.inf, math.nan])
def test_terminal_rows_never_see_the_bootstrap(poison: float) -> None:
    bootstrap = torch.tensor([poison, 10.0])
    target = bootstrap_target(torch.tensor([1.5, 1.5]), 0.5, torch.tensor([True, False]), bootstrap)
    assert target.tolist() == [1.5, 6.5]


def test_discount_per_row() -> None:
    discount = torch.tensor([0.5, 0.25])
    target = bootstrap_target(torch.zeros(2), discount, torch.zeros(2, dtype=torch.bool), torch.full((2,), 8.0))
    assert target.tolist() == [4.0, 2.0]


def test_bootstrap_target_is_a_constant() -> None:
    value = torch.ones(2, requires_grad=True)
    assert not bootstrap_target(torch.zeros(2), 0.9, torch.zeros(2, dtype=torch.bool), value).requires_grad


@pytest.mark.parametrize("garbage", [0.0, 1e6, math.nan])
def test_a_penalty_counts_where_it_is_known(garbage: float) -> None:
    value, distance = torch.tensor([5.0, 5.0]), torch.tensor([2.0, garbage])
    assert penalised_value(value, distance, 0.25, torch.tensor([True, False])).tolist() == [4.5, 5.0]


def test_a_penalty_of_zero_changes_no_bit() -> None:
    value, distance = torch.tensor([0.1, -1e-30, 3e7]), torch.tensor([2.0, 0.3, 1e9])
    assert torch.equal(penalised_value(value, distance, 0.0, torch.ones(3).bool()), value)


def test_ensemble_errors_by_hand() -> None:
    predictions = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    assert squared_error(predictions, torch.tensor([1.0, 1.0])).tolist() == [[0.0, 1.0], [1.0, 4.0]]


def test_mean_over_counts_only_valid_rows() -> None:
    values = torch.tensor([[1.0, 5.0, 3.0], [2.0, math.nan, 4.0]])
    assert mean_over(values, torch.tensor([True, False, True])).tolist() == [2.0, 3.0]


def test_mean_over_no_valid_row_is_zero_with_zero_gradient() -> None:
    values = torch.ones(2, 3, requires_grad=True)
    mean = mean_over(values, torch.zeros(3, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(mean.sum(), values)
    assert mean.tolist() == [0.0, 0.0]
    assert not gradient.any()


def test_invalid_rows_give_no_gradient() -> None:
    values = torch.ones(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(mean_over(values, torch.tensor([True, False, True])).sum(), values)
    assert gradient.tolist() == [[0.5, 0.0, 0.5]] * 2


def test_the_size_of_an_error_is_the_mean_over_critics_and_a_constant() -> None:
    predictions = torch.tensor([[1.0, 0.0, math.nan], [4.0, -2.0, 0.0]], requires_grad=True)
    size = absolute_error(predictions, torch.tensor([2.0, 1.0, 0.0]), torch.tensor([True, True, False]))
    assert size.tolist() == [1.5, 2.0, 0.0]
    assert not size.requires_grad
