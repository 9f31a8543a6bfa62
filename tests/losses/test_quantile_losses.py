"""Quantile regression finds quantiles; Huber's loss is quadratic near and linear far."""

import pytest
import torch
from torch import Tensor

from understudy.losses.quantile import least_member, quantile_huber_loss
from understudy.losses.value import huber_error, squared_error


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand() -> None:
    """Two quantiles (levels ¼ and ¾) at 0 and 1, targets 0.5 and 3, κ = 1."""
    loss = quantile_huber_loss(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[0.5, 3.0]]), 1.0)
    first = (0.25 * 0.125 + 0.25 * 2.5) / 2
    second = (0.25 * 0.125 + 0.75 * 1.5) / 2
    assert float(loss) == pytest.approx(first + second)


def test_row_by_row() -> None:
    quantiles, target, threshold = numbers(2, 5, 3), 2 * numbers(5, 4, seed=2), 0.7
    found = quantile_huber_loss(quantiles, target, threshold)
    for member in range(2):
        for row in range(5):
            total = 0.0
            for i, level in enumerate((1 / 6, 3 / 6, 5 / 6)):
                for j in range(4):
                    error = float(target[row, j] - quantiles[member, row, i])
                    size = abs(error)
                    huber = 0.5 * size**2 if size <= threshold else threshold * (size - 0.5 * threshold)
                    total += (1 - level if error < 0 else level) * huber / threshold / 4
            assert float(found[member, row]) == pytest.approx(total)


def test_its_minimisers_are_the_quantiles() -> None:
    """Of 0, 1, … 1000, with a threshold so small that the loss is the pinball."""
    target = torch.arange(1001, dtype=torch.float64).unsqueeze(0)
    guess = torch.full((1, 1, 5), 500.0, dtype=torch.float64, requires_grad=True)
    search = torch.optim.Adam([guess], lr=2.0)
    for step in range(1200):
        for group in search.param_groups:
            group["lr"] = 2.0 if step < 800 else 0.1
        search.zero_grad()
        torch.autograd.backward(quantile_huber_loss(guess, target, 1e-3).sum())
        search.step()
    assert guess.flatten().tolist() == pytest.approx([100, 300, 500, 700, 900], abs=2.0)


def test_one_quantile_is_half_of_hubers_loss() -> None:
    quantiles, target = numbers(2, 20, 1), 3 * numbers(20, 1, seed=2)
    found = quantile_huber_loss(quantiles, target, 1.0)
    expected = 0.5 * torch.nn.functional.huber_loss(quantiles[..., 0], target[:, 0].expand(2, -1), reduction="none")
    torch.testing.assert_close(found, expected)


def test_slopes() -> None:
    quantiles, target = numbers(2, 4, 3).requires_grad_(), numbers(4, 3, seed=2)
    assert torch.autograd.gradcheck(lambda x: quantile_huber_loss(x, target, 0.5), quantiles)


def test_the_member_that_expects_least_row_by_row() -> None:
    quantiles = numbers(3, 20, 4)
    found = least_member(quantiles)
    for row in range(20):
        least = min(range(3), key=lambda member: float(quantiles[member, row].sum()))
        assert torch.equal(found[row], quantiles[least, row])


def test_one_quantile_of_the_least_member_is_the_minimum() -> None:
    values = numbers(3, 20, 1)
    assert torch.equal(least_member(values), values.amin(0))


def test_huber_is_the_squared_error_near_the_target_and_twice_torchs_everywhere() -> None:
    predictions, target = 3 * numbers(2, 50), numbers(50, seed=2)
    found = huber_error(predictions, target, 0.8)
    near = (predictions - target).abs() <= 0.8
    torch.testing.assert_close(found[near], squared_error(predictions, target)[near])
    theirs = torch.nn.functional.huber_loss(predictions, target.expand(2, -1), reduction="none", delta=0.8)
    torch.testing.assert_close(found, 2 * theirs)
    assert bool(near.any())
    assert not bool(near.all())


def test_huber_beyond_the_threshold_has_a_constant_slope() -> None:
    predictions = torch.tensor([[0.5, 10.0, -10.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(huber_error(predictions, torch.zeros(3), 1.0).sum(), predictions)
    assert slope.tolist() == [[1.0, 2.0, -2.0]]


MOVING = torch.ones(4, 3, requires_grad=True)


def test_targets_that_carry_gradient_and_shapes_that_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match="carries gradient"):
        quantile_huber_loss(torch.ones(2, 4, 3), MOVING)
    with pytest.raises(ValueError, match="carries gradient"):
        huber_error(torch.ones(2, 4), MOVING[:, 0], 1.0)
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        quantile_huber_loss(torch.ones(2, 4, 3), torch.ones(1, 3))
    with pytest.raises(ValueError, match="nothing broadcasts here"):
        huber_error(torch.ones(2, 4), torch.ones(4, 1), 1.0)
