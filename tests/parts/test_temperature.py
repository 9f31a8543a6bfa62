"""Learned temperatures and multipliers go where they should, and can come back."""

import math

import pytest
import torch

from understudy.core.state import capture
from understudy.parts.temperature import CEILING, Multiplier, Temperature

CPU = torch.device("cpu")


def test_a_temperature_starts_where_it_is_told() -> None:
    assert float(Temperature.starting_at(0.2, CPU).value()) == pytest.approx(0.2)
    assert float(Multiplier.starting_at(1.0, CPU).value()) == pytest.approx(math.e)


@pytest.mark.parametrize(("log_prob", "sign"), [(5.0, 1), (-5.0, -1)])
def test_a_temperature_follows_the_entropy(log_prob: float, sign: int) -> None:
    """log π = 5 is an entropy of −5, below the target −2: Adam's first step is the learning rate, upward."""
    temperature = Temperature.starting_at(1.0, CPU)
    temperature.follow(torch.full((8,), log_prob), -2.0, 0.01)
    assert float(temperature.log_alpha.detach()) == pytest.approx(sign * 0.01, rel=1e-4)


def test_at_its_target_it_rests() -> None:
    temperature = Temperature.starting_at(1.0, CPU)
    temperature.follow(torch.full((8,), 2.0), -2.0, 0.01)
    assert float(temperature.log_alpha.detach()) == 0.0


def test_a_multiplier_is_bounded_and_comes_down_again() -> None:
    multiplier = Multiplier.starting_at(math.log(CEILING) - 0.01, CPU)
    for _ in range(5):
        multiplier.follow(torch.ones(2, 4), 0.1)
    assert float(multiplier.value()) == pytest.approx(CEILING, rel=1e-4)
    for _ in range(60):
        multiplier.follow(-torch.ones(2, 4), 0.1)
    assert float(multiplier.value()) < 0.5 * CEILING


def test_numbers_and_their_optimisers_are_state_and_values_are_constants() -> None:
    for learned in (Temperature.starting_at(1.0, CPU), Multiplier.starting_at(0.0, CPU)):
        assert len(capture(learned)) == 5
        assert not learned.value().requires_grad
