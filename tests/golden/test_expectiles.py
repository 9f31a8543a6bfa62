"""O-1, O-2, O-3: the minimiser of our expectile loss is the expectile."""

import pytest
import torch
from t30 import minimise
from torch import Tensor

from understudy.losses.value import expectile_loss


def expectile_of(values: Tensor, chances: Tensor, tau: float) -> float:
    """Minimiser of the loss's expectation."""

    def loss(guess: Tensor) -> Tensor:
        return (chances * expectile_loss(guess.expand_as(values), values, tau)).sum()

    return float(minimise(loss, torch.zeros((), dtype=torch.float64), steps=30))


@pytest.mark.parametrize("tau", [0.3, 0.5, 0.7, 0.9])
def test_a_fair_coin_has_expectile_tau(tau: float) -> None:
    """O-1."""
    found = expectile_of(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([0.5, 0.5]), tau)
    assert found == pytest.approx(tau, abs=1e-7)  # torch.where rounds τ to float32


@pytest.mark.parametrize(("tau", "chance", "expectile"), [(0.7, 0.2, 7 / 19), (0.9, 0.1, 0.5), (0.9, 0.25, 0.75)])
def test_an_unfair_coin(tau: float, chance: float, expectile: float) -> None:
    """O-1: odds of the expectile are odds of the coin times odds of τ."""
    chances = torch.tensor([1 - chance, chance], dtype=torch.float64)
    assert expectile_of(torch.tensor([0.0, 1.0], dtype=torch.float64), chances, tau) == pytest.approx(expectile)


ARMS = [(0.5, 0.9), (0.6, 1.090909), (0.7, 1.342105), (0.8, 1.6875), (0.9, 2.192308), (0.99, 2.898058)]


@pytest.mark.parametrize(("tau", "expectile"), ARMS)
def test_three_arms(tau: float, expectile: float) -> None:
    """O-2."""
    arms = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    found = expectile_of(arms, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), tau)
    assert found == pytest.approx(expectile, abs=1e-6)


NORMAL = [(0.6, 0.161658), (0.7, 0.337120), (0.8, 0.549156), (0.9, 0.861592), (0.95, 1.140171), (0.99, 1.717437)]


@pytest.mark.parametrize(("tau", "expectile"), NORMAL)
def test_unit_normal(tau: float, expectile: float) -> None:
    """O-3, and the mirror image at 1 − τ."""
    values = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    chances = torch.softmax(-values.square() / 2, dim=0)
    assert expectile_of(values, chances, tau) == pytest.approx(expectile, abs=2e-6)
    assert expectile_of(values, chances, 1 - tau) == pytest.approx(-expectile, abs=2e-6)
