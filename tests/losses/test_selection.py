"""Which rows are kept: counts, ties, factors that average 1, and what selection does to a mean (oracles O-31, O-32)."""

import math

import pytest
import torch
from torch import Tensor

from understudy.losses.selection import (
    best_among,
    best_rows,
    confidence_weights,
    keep_count,
    overlap,
    row_factors,
    standard_score,
    value_disagreement,
)


@pytest.mark.parametrize(
    ("rate", "rows", "count"), [(0.8, 256, 204), (0.29, 100, 29), (1.0, 256, 256), (0.001, 100, 1), (0.5, 1, 1)]
)
def test_the_count_is_the_floor_of_what_is_meant(rate: float, rows: int, count: int) -> None:
    assert int(keep_count(rate, rows)) == count


def test_a_smallest_count_holds_and_never_exceeds_the_rows() -> None:
    assert int(keep_count(0.01, 100, smallest=8)) == 8
    assert int(keep_count(0.01, 4, smallest=8)) == 4


def test_the_best_rows_are_the_highest_scores() -> None:
    score = torch.tensor([0.3, -1.0, 2.0, 0.7, 0.1])
    assert best_rows(score, torch.tensor(2)).tolist() == [False, False, True, True, False]
    assert best_rows(score, torch.tensor(5)).all()


def test_of_equal_scores_the_first_are_kept() -> None:
    score = torch.tensor([1.0, 2.0, 1.0, 1.0])
    assert best_rows(score, torch.tensor(3)).tolist() == [True, True, True, False]


def test_it_is_top_k_on_random_scores() -> None:
    score = torch.randn(257, generator=torch.Generator().manual_seed(0))
    for count in (1, 100, 256):
        chosen = set(best_rows(score, torch.tensor(count)).nonzero().flatten().tolist())
        assert chosen == set(score.topk(count).indices.tolist())


def test_only_eligible_rows_are_chosen_from() -> None:
    score = torch.tensor([5.0, -3.0, -7.0, 4.0])
    eligible = torch.tensor([False, True, True, False])
    assert best_among(score, eligible, torch.tensor(1)).tolist() == [False, True, False, False]
    assert best_among(score, eligible, torch.tensor(2)).tolist() == [False, True, True, False]


def test_standard_scores() -> None:
    scores = standard_score(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.allclose(scores, torch.tensor([-1.0, 0.0, 1.0]) * math.sqrt(1.5))
    for constant in (7.0, 0.1, -1e6, 0.0):
        assert standard_score(torch.full((256,), constant)).tolist() == [0.0] * 256
    assert float(standard_score(torch.tensor([1.0, 1.0001])).abs().min()) == pytest.approx(1.0, rel=1e-2)


def test_learners_disagree_by_how_far_their_least_values_are_apart() -> None:
    """Not by how far their critics are: of row 0 both believe 1, at least."""
    first = torch.tensor([[1.0, 4.0, -2.0], [3.0, 2.0, 0.0]])
    second = torch.tensor([[5.0, 6.0, 1.0], [1.0, 5.0, 2.0]])
    assert value_disagreement(first, second).tolist() == [0.0, 3.0, 3.0]
    assert torch.equal(value_disagreement(first, second), value_disagreement(second, first))


def test_confidence_counts_as_its_exponential() -> None:
    """Two rows stand one deviation below and above their mean: e and 1/e, over cosh 1."""
    log_prob = torch.tensor([-9.0, -5.0])
    unsure, sure = math.e / math.cosh(1.0), 1.0 / math.e / math.cosh(1.0)
    assert confidence_weights(log_prob, 1.0, 10.0).tolist() == pytest.approx([unsure, sure])
    assert confidence_weights(log_prob, -1.0, 10.0).tolist() == pytest.approx([sure, unsure])
    assert confidence_weights(log_prob, 0.0, 10.0).tolist() == [1.0, 1.0]
    assert confidence_weights(100 * log_prob - 3.0, 1.0, 10.0).tolist() == pytest.approx([unsure, sure])


def test_confidence_is_bounded_where_others_divide_by_a_density() -> None:
    """1/(density + 1e-8) of these rows is 1e8 for one of them."""
    log_prob = torch.cat([torch.zeros(99), torch.tensor([-1e6])])
    weight = confidence_weights(log_prob, 3.0, 10.0)
    assert float(weight.amax() / weight.amin()) == pytest.approx(10.0 * math.exp(3.0 / math.sqrt(99.0)), rel=1e-4)
    assert float(weight.mean()) == pytest.approx(1.0)
    assert torch.isfinite(confidence_weights(log_prob, 1e30, 10.0)).all()


def test_confidence_moves_no_weight_between_a_term_and_others() -> None:
    """The average over rows as they count is 1, whatever rows are chosen."""
    rng = torch.Generator().manual_seed(0)
    log_prob, importance = torch.randn(64, generator=rng), torch.rand(64, generator=rng)
    factors = row_factors(torch.rand(64, generator=rng) < 0.3, importance)
    assert factors is not None
    assert float((factors * confidence_weights(log_prob, 2.0, 10.0, factors)).mean()) == pytest.approx(1.0)
    assert float((factors * confidence_weights(log_prob, 2.0, 10.0)).mean()) != pytest.approx(1.0, abs=1e-3)


def test_factors_make_a_plain_mean_the_mean_over_chosen_rows() -> None:
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0])
    chosen = torch.tensor([True, False, True, False])
    weight = torch.tensor([1.0, 5.0, 3.0, 2.0])
    assert row_factors(None, None) is None
    assert mean(row_factors(chosen, None), losses) == pytest.approx(2.0)
    assert mean(row_factors(None, weight), losses) == pytest.approx((1 + 10 + 9 + 8) / 11)
    assert mean(row_factors(chosen, weight), losses) == pytest.approx((1 + 9) / 4)


def test_factors_leave_out_rows_that_are_not_valid() -> None:
    valid = torch.tensor([True, True, False, True])
    factors = row_factors(torch.tensor([True, False, True, True]), torch.tensor([2.0, 9.0, 9.0, 6.0]), valid)
    assert factors is not None
    assert factors.tolist() == pytest.approx([0.75, 0.0, 0.0, 2.25])
    assert float(factors[valid].mean()) == pytest.approx(1.0)


@pytest.mark.parametrize("constant", [1.0, 2.0, 0.1, 0.3, 0.7, 3.3])
def test_all_alike_is_one_to_the_bit(constant: float) -> None:
    """Whatever the constant, and with every row chosen: the product with a loss is the loss."""
    for rows in (8, 100, 256):
        everything, alike = torch.ones(rows, dtype=torch.bool), torch.full((rows,), constant)
        for factors in (
            row_factors(everything, None),
            row_factors(None, alike),
            row_factors(everything, alike, everything),
        ):
            assert factors is not None
            assert torch.equal(factors, torch.ones(rows))


def test_nothing_broadcasts() -> None:
    with pytest.raises(ValueError, match="nothing broadcasts"):
        row_factors(torch.ones(4, dtype=torch.bool), torch.ones(4, 1))


def test_overlap() -> None:
    left, right = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    assert float(overlap(left, right)) == 0.5
    assert float(overlap(left, left)) == 1.0


def settled_mean(rewards: Tensor, rate: float) -> float:
    """Where a value that learns from the rows it explains best comes to rest."""
    value = rewards.mean()
    for _ in range(500):
        chosen = best_rows(-(rewards - value).abs(), keep_count(rate, len(rewards)))
        value = rewards[chosen].mean()
    return float(value)


def test_selection_destroys_rare_rewards() -> None:
    """Reward 10 with probability .1 is worth 1; learned from the 80 % that fit best it is worth nothing."""
    rewards = torch.cat([torch.full((100,), 10.0), torch.zeros(900)])
    assert float(rewards.mean()) == pytest.approx(1.0)
    assert settled_mean(rewards, 0.8) == 0.0


def test_selection_mends_rare_corruption() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards = 1.0 + 0.1 * torch.randn(10_000, generator=generator, dtype=torch.float64)
    rewards[:1000] += 20.0
    assert float(rewards.mean()) == pytest.approx(3.0, abs=0.01)
    assert settled_mean(rewards, 0.85) == pytest.approx(1.0, abs=0.01)


def test_selection_biases_a_skewed_reward() -> None:
    quantiles = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    assert settled_mean(-torch.log1p(-quantiles), 0.8) == pytest.approx(0.597, abs=0.002)


def mean(factors: Tensor | None, losses: Tensor) -> float:
    assert factors is not None
    return float((factors * losses).mean())
