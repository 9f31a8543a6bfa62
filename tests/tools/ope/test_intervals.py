"""Resamplings of episodes and seeds: as wide as theory says, and the same draws for everybody."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from understudy.core.errors import DataError
from understudy.tools.ope.estimators import Steps, importance_sampling, initial_values, weighted_importance_sampling
from understudy.tools.ope.intervals import Resampling, above, around, of_resamples, student_quantile


def test_of_a_mean_it_is_as_wide_as_theory_says() -> None:
    """Means of n numbers have a deviation of σ/√n; those of several seeds add σ_seeds/√K."""
    rng = np.random.default_rng(0)
    values = rng.normal(5, 2, 400)
    alone = Resampling(400, 1).of([initial_values(values)])
    assert alone.mean() == pytest.approx(values.mean(), abs=0.02)
    assert alone.std() == pytest.approx(values.std() / 20, rel=0.1)
    offsets = [-3.0, 0.0, 3.0]
    three = Resampling(400, 3).of([initial_values(values + offset) for offset in offsets])
    assert three.std() == pytest.approx(np.hypot(values.std() / 20, np.std(offsets) / np.sqrt(3)), rel=0.1)


def test_weighted_estimates_are_drawn_whole() -> None:
    """Numerator and denominator of the same episodes: a constant reward has no interval, whatever the weights."""
    rng = np.random.default_rng(1)
    steps = Steps.of(np.full(50, 2.0), rng.normal(0, 1, 50), np.ones(50, np.int64))
    weighted = Resampling(50, 1).of([weighted_importance_sampling(steps, 1.0)])
    assert np.allclose(weighted, 2.0)
    assert Resampling(50, 1).of([importance_sampling(steps, 1.0)]).std() > 0.1


def test_candidates_are_compared_within_a_draw() -> None:
    """A little better in every episode is better, however the episodes vary; the same with noise is not."""
    rng = np.random.default_rng(2)
    values = rng.normal(0, 100, 60)
    shifts: dict[str, Any] = {"one": 0.0, "better": 1.0, "noisy": rng.normal(0, 20, 60)}
    draws = {name: Resampling(60, 1).of([initial_values(values + more)]) for name, more in shifts.items()}
    assert above(draws["better"], draws["one"])
    assert not above(draws["one"], draws["better"])
    assert not above(draws["noisy"], draws["one"])
    wide, narrow = (around(0.0, draws["one"], confidence) for confidence in (0.99, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_draws_that_know_nothing_may_be_anything() -> None:
    """One weight of ten episodes: a third of the draws lack it, and nobody knows what they would have said."""
    weight = np.where(np.arange(10) == 0, 0.0, -np.inf)
    steps = Steps.of(np.full(10, -3.0), weight, np.ones(10, np.int64))
    draws = Resampling(10, 1).of([weighted_importance_sampling(steps, 1.0)])
    assert np.isnan(draws).mean() == pytest.approx(0.9**10, abs=0.05)
    known = around(-3.0, draws)
    assert math.isnan(known.low)
    assert math.isnan(known.high)
    few = np.where(np.arange(1000) < 10, np.nan, np.arange(1000.0))
    assert around(0.0, few).low == pytest.approx(np.quantile(few[10:], 0.015), abs=1.0)
    assert not above(draws, draws - 1)


def test_draws_come_in_pieces_and_are_repeatable() -> None:
    values = initial_values(np.arange(5.0))
    assert np.array_equal(Resampling(5, 1, draws=30).of([values]), Resampling(5, 1, draws=30).of([values]))
    assert not np.array_equal(Resampling(5, 1, draws=30).of([values]), Resampling(5, 1, draws=30, seed=1).of([values]))
    with pytest.raises(DataError, match="not the episodes and seeds"):
        Resampling(6, 1).of([values])


def test_quantiles_of_students_distribution() -> None:
    """From two seeds to a thousand, as SciPy has them; one degree is Cauchy's, whose are tan(π·p/2)."""
    for degrees in (*range(1, 31), 99, 100, 999):
        for confidence in (0.5, 0.9, 0.95, 0.99):
            known = stats.t.ppf((1 + confidence) / 2, degrees)
            assert student_quantile(confidence, degrees) == pytest.approx(known, rel=1e-9), (degrees, confidence)
    assert student_quantile(0.95, 1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-9)


def test_few_resamples_have_an_interval_that_is_wider_the_fewer_they_are() -> None:
    """Of 1, 2, 3: 2 ± 4.30265·1·√(4/3). None of one, nor of critics that diverged; the mean is told all the same."""
    known = of_resamples(2.0, np.array([1.0, 2.0, 3.0]))
    assert (known.value, known.high - 2, 2 - known.low) == pytest.approx((2.0, 4.968276, 4.968276), abs=1e-5)
    assert of_resamples(2.0, np.array([2.0, 2.0])).low == 2.0
    for unknown in (of_resamples(5.0, np.array([5.0])), of_resamples(5.0, np.array([1.0, math.nan, 3.0]))):
        assert (unknown.value, math.isnan(unknown.low), math.isnan(unknown.high)) == (5.0, True, True)


def test_intervals_of_few_resamples_hold_what_they_promise() -> None:
    """Of means of 40 numbers, resampled K times: 95 of 100 hold the truth, and of two equals 5 of 100 look better."""
    rng = np.random.default_rng(3)
    for seeds in (2, 3, 5, 10):
        held = told = 0
        for _ in range(2000):
            shared, own = rng.standard_normal((2, 40))
            picked = rng.integers(40, size=(seeds, 40))
            one, other = (values[picked].mean(1) for values in (shared, shared + 0.3 * own))
            known = of_resamples(float(one.mean()), one)
            held += known.low < 0 < known.high
            told += above(one, other, of_resamples) + above(other, one, of_resamples)
        assert held / 2000 == pytest.approx(0.945, abs=0.02), seeds
        assert told / 2000 == pytest.approx(0.055, abs=0.02), seeds


def test_candidates_are_compared_within_a_seed() -> None:
    """A little better in every resample is better, however resamples differ; and of one seed nobody is."""
    shared = np.array([-50.0, 3.0, 40.0, -11.0])
    better = shared + np.array([1.0, 1.1, 0.9, 1.0])
    assert above(better, shared, of_resamples)
    assert not above(shared, better, of_resamples)
    assert not above(better[::-1], shared, of_resamples)
    assert not above(better[:1], shared[:1], of_resamples)
    assert not above(np.full(4, np.inf), np.full(4, np.inf), of_resamples)
