"""Weights as learners take them."""

import pytest
import torch
from gaussians import grid, true_ratio, true_relative
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from understudy.core.errors import UnderstudyError
from understudy.losses.weights import effective_sample_size

positive = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50).filter(lambda values: sum(values) > 1e-6)


@given(values=positive)
def test_tamed_weights_average_one_and_are_bounded(values: list[float]) -> None:
    weighing = us.ratios.tame(torch.tensor(values, dtype=torch.float64))
    assert float(weighing.weights.mean()) == pytest.approx(1)
    assert float(weighing.weights.max() / weighing.weights.min()) <= 100 * (1 + 1e-12)
    facts = weighing.statistics
    assert 1 - 1e-9 <= facts.effective_sample_size <= len(values) * (1 + 1e-9)
    assert facts.largest == float(weighing.weights.max())


@given(values=positive)
def test_the_effective_sample_size_is_that_of_the_losses(values: list[float]) -> None:
    weights = torch.tensor(values, dtype=torch.float64)
    expected = float(effective_sample_size(weights))
    assert us.ratios.weight_statistics(weights).effective_sample_size == pytest.approx(expected)


def test_statistics_by_hand() -> None:
    facts = us.ratios.weight_statistics(torch.tensor([0.0, 1.0, 3.0, 12.0]), low=0.1, high=10)
    assert (facts.count, facts.mean, facts.smallest, facts.largest) == (4, 4.0, 0.0, 12.0)
    assert facts.effective_sample_size == pytest.approx(256 / 154)
    assert facts.effective_share == pytest.approx(64 / 154)
    assert facts.clipped_share == 0.5


def test_taming_by_hand() -> None:
    """Mean 25: raw/mean = .02, .02, 0, 3.96 → .1, .1, .1, 3.96 → divided by their mean 1.065."""
    weighing = us.ratios.tame(torch.tensor([0.5, 0.5, 0.0, 99.0], dtype=torch.float64))
    expected = torch.tensor([0.1, 0.1, 0.1, 3.96], dtype=torch.float64) / 1.065
    assert torch.allclose(weighing.weights, expected)
    assert weighing.statistics.clipped_share == 0.75


def test_a_relative_ratio_turns_back_into_the_plain_one() -> None:
    for alpha in (0.0, 0.1, 0.5, 0.9):
        back = us.ratios.plain_ratio(true_relative(grid(), alpha), alpha)
        assert torch.allclose(back, true_ratio(grid()), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: us.ratios.normalise(torch.zeros(3)), "all zero"),
        (lambda: us.ratios.normalise(torch.ones(3, 1)), r"got \[3, 1\]"),
        (lambda: us.ratios.normalise(torch.ones(0)), r"got \[0\]"),
        (lambda: us.ratios.tame(torch.tensor([1.0, torch.nan])), "finite"),
        (lambda: us.ratios.clip(torch.tensor([1.0, -1.0])), "not negative"),
        (lambda: us.ratios.clip(torch.ones(2), 2.0, 1.0), r"wrong bounds: got \[2, 1\]"),
        (lambda: us.ratios.plain_ratio(torch.tensor([2.0]), 0.5), "no ratio belongs to this: got 2, expected below 2"),
        (lambda: us.ratios.plain_ratio(torch.ones(2), 1.0), "alpha"),
    ],
)
def test_weights_that_are_none_are_refused(call: object, told: str) -> None:
    assert callable(call)
    with pytest.raises(UnderstudyError, match=told):
        call()
