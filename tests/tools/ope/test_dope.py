"""DOPE's three numbers, by hand."""

import math

import numpy as np
import pytest

from understudy.core.errors import DataError
from understudy.tools.ope.dope import absolute_error, rank_correlation, ranks, regret_at


def test_ranks_are_shared_by_equals() -> None:
    assert ranks([30.0, 10.0, 20.0, 10.0]).tolist() == [4.0, 1.5, 3.0, 1.5]


def test_rank_correlation_is_spearmans() -> None:
    """1 − 6Σd²/(n(n² − 1)) where there are no equals; only the order counts."""
    a, b = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 5.0]
    assert rank_correlation(a, b) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert rank_correlation(np.exp(a), b) == pytest.approx(rank_correlation(a, b))
    assert rank_correlation(a, a[::-1]) == pytest.approx(-1.0)
    assert math.isnan(rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
    assert rank_correlation([1.0, 1.0, 2.0], [1.0, 2.0, 3.0]) == pytest.approx(math.sqrt(3) / 2)


def test_regret_is_what_the_chosen_miss() -> None:
    guess, true = [3.0, 2.0, 1.0], [10.0, 40.0, 50.0]
    assert [regret_at(k, guess, true) for k in (1, 2, 3)] == [40.0, 10.0, 0.0]
    assert regret_at(1, guess, true, normalized=True) == 1.0
    assert regret_at(1, [1.0, 1.0], [0.0, 5.0]) == 5.0, "nobody is lucky"


def test_errors_are_absolute() -> None:
    assert absolute_error([1.0, 5.0], [2.0, 1.0]) == 2.5
    assert absolute_error([1.0, 5.0], [2.0, 1.0], normalized=True) == 2.5


def test_what_cannot_be_ranked_is_refused() -> None:
    with pytest.raises(DataError, match="not one estimate for each of several"):
        rank_correlation([1.0], [1.0])
    with pytest.raises(DataError, match="not finite"):
        rank_correlation([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(DataError, match="got 4, expected 1 to 3"):
        regret_at(4, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
