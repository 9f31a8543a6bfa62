"""Advantage weights and what is watched about them."""

import math

import pytest
import torch
from torch import Tensor

from understudy.losses.weights import awr_weights, clipped_share, effective_sample_size, weigh, weighted_mean


def unit_normal(rows: int = 1_000_000) -> Tensor:
    """Evenly spaced quantiles instead of draws: no luck involved."""
    values: Tensor = torch.special.ndtri((torch.arange(rows, dtype=torch.float64) + 0.5) / rows)
    return values


@pytest.mark.parametrize(("beta", "share"), [(1 / 3, 0.894839), (1.0, 0.367879)])
def test_effective_share_of_unit_normal_advantages(beta: float, share: float) -> None:
    """Log-normal weights have (E ω)²/E ω² = exp(−β²); a batch of 16 shows more (.90 and .52), as its tail is cut."""
    weights = awr_weights(unit_normal(), beta, 1e30)
    assert float(effective_sample_size(weights)) / len(weights) == pytest.approx(share, abs=5e-4)


def test_the_ceiling_keeps_a_sharp_weighting_alive() -> None:
    """Without it β = 3 would leave exp(−9) of the rows; the ceiling's share is a normal integral."""
    beta, ceiling = 3.0, 100.0
    edge = math.log(ceiling) / beta
    tail = 1 - below(edge)
    first = math.exp(beta**2 / 2) * below(edge - beta) + ceiling * tail
    second = math.exp(2 * beta**2) * below(edge - 2 * beta) + ceiling**2 * tail
    weights = awr_weights(unit_normal(), beta, ceiling)
    assert float(effective_sample_size(weights)) / len(weights) == pytest.approx(first**2 / second, abs=1e-4)
    assert first**2 / second == pytest.approx(0.18, abs=0.01)


def below(x: float) -> float:
    """Share of a unit normal below x."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def test_effective_sample_size_counts_equal_rows() -> None:
    assert float(effective_sample_size(torch.full((7,), 3.0))) == pytest.approx(7)
    assert float(effective_sample_size(torch.tensor([5.0, 0.0, 0.0]))) == pytest.approx(1)
    assert float(effective_sample_size(torch.tensor([2.0, 2.0, 0.0]))) == pytest.approx(2)
    assert float(effective_sample_size(torch.zeros(3))) == 0


def test_weights_are_constants() -> None:
    advantage = torch.ones(3, requires_grad=True)
    assert not awr_weights(advantage, 3.0, 100.0).requires_grad


def test_beta_zero_weighs_every_row_exactly_one() -> None:
    advantage = torch.tensor([-1e30, -1.0, 0.0, 5.0, 1e30])
    assert awr_weights(advantage, 0.0, 100.0).tolist() == [1.0] * 5


def test_clipped_share() -> None:
    advantage = torch.tensor([-9.0, 0.0, 1.0, 1.6, 9.0])
    assert float(clipped_share(advantage, 3.0, 100.0)) == pytest.approx(0.4)
    assert float(clipped_share(advantage, 0.0, 100.0)) == 0.0


def test_a_weighted_mean_counts_rows_as_often_as_they_weigh() -> None:
    losses, counts = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([3.0, 0.0, 1.0])
    repeated = torch.tensor([1.0, 1.0, 1.0, 2.0])
    assert float(weighted_mean(losses, counts)) == pytest.approx(float(repeated.mean()))
    assert float(weighted_mean(losses, 7 * counts)) == pytest.approx(float(repeated.mean()))
    assert float(weighted_mean(losses, torch.zeros(3))) == 0


def test_values_without_weights_are_themselves() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert weigh(values, None) is values
    assert weigh(values, torch.tensor([0.5, 0.0])).tolist() == [[0.5, 0.0], [1.5, 0.0]]
