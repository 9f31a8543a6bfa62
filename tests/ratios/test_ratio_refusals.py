"""What no ratio can be fitted to is refused with a sentence, and never answered with uniform weights."""

from typing import Any

import numpy as np
import pytest
import torch
from gaussians import samples
from torch import Tensor

import understudy as us
from understudy.core.errors import ConfigError, DataError, UnderstudyError

ALL: list[us.ratios.Estimator] = [us.ratios.KLIEP(), us.ratios.ULSIF(), us.ratios.RuLSIF(), us.ratios.Classifier()]
ABOVE, BELOW = samples(0, 100, features=2)


def changed(rows: Tensor, row: int, column: int, value: float) -> Tensor:
    copy = rows.clone()
    copy[row, column] = value
    return copy


BAD: dict[str, tuple[Any, Any, str]] = {
    "one dimension": (ABOVE[:, 0], BELOW, r"numerator: wrong shape: got \[100\].*reshape"),
    "three dimensions": (ABOVE, BELOW[None], r"denominator: wrong shape: got \[1, 100, 2\]"),
    "no rows": (ABOVE[:0], BELOW, r"numerator: empty: got \[0, 2\]"),
    "no features": (ABOVE, BELOW[:, :0], r"denominator: empty: got \[100, 0\]"),
    "other features": (ABOVE[:, :1], BELOW, "numerator: wrong number of features: got 1, expected 2"),
    "a list": ([[1.0, 2.0]], BELOW, "numerator: not an array or tensor: got list"),
    "words": (np.array([["a", "b"]]), BELOW, "numerator: not real numbers"),
    "complex": (ABOVE.to(torch.complex64), BELOW, "numerator: not real numbers"),
    "nan": (changed(ABOVE, 7, 1, torch.nan), BELOW, "numerator: not a finite number in row 7, feature 1: got nan"),
    "infinite": (ABOVE, changed(BELOW, 3, 0, -torch.inf), "denominator: not a finite number in row 3.*got -inf"),
    "constant": (ABOVE, BELOW * torch.tensor([1.0, 0.0]), r"denominator: constant features: got columns \[1\]"),
    "constant, not zero": (ABOVE, BELOW * torch.tensor([0.0, 1.0]) + 0.1, r"constant features: got columns \[0\]"),
    "one row": (ABOVE[:1], BELOW, "numerator: too few rows: got 1, expected at least 2"),
    "far away": (ABOVE + 100, BELOW, "outside the denominator's support.*got 100%"),
    "farther": (ABOVE + 1e9, BELOW, "outside the denominator's support"),
    "not that far": (ABOVE + 7, BELOW, "outside the denominator's support"),
}


@pytest.mark.parametrize("estimator", ALL, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_samples_are_refused(estimator: us.ratios.Estimator, case: str) -> None:
    above, below, told = BAD[case]
    with pytest.raises(DataError, match=told) as raised:
        estimator.fit(above, below)
    assert str(raised.value).startswith(f"ratios.{type(estimator).__name__}")


@pytest.mark.parametrize("estimator", ALL, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize(
    ("weights", "told"),
    [
        (torch.ones(100, 1), r"numerator_weights: wrong shape: got \[100, 1\], expected \[100\]"),
        (torch.ones(99), r"wrong shape: got \[99\]"),
        ([1.0] * 100, "got list"),
        (torch.zeros(100), "nor all zero"),
        (torch.linspace(-1, 1, 100), "must not be negative"),
        (torch.full((100,), torch.nan), "not a finite number"),
        (torch.eye(100)[3], "too few rows: got 1"),
    ],
)
def test_bad_weights_are_refused(estimator: us.ratios.Estimator, weights: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        estimator.fit(ABOVE, BELOW, numerator_weights=weights)


def test_fewer_rows_than_folds_are_refused() -> None:
    with pytest.raises(DataError, match="fewer rows than folds: got 4, expected at least 5"):
        us.ratios.KLIEP().fit(ABOVE[:4], BELOW)
    us.ratios.KLIEP(bandwidth=1.0).fit(ABOVE[:4], BELOW)


def test_too_few_rows_to_hold_some_out_are_refused() -> None:
    with pytest.raises(DataError, match=r"too few rows to hold out 0\.2: got 2"):
        us.ratios.Classifier().fit(ABOVE[:2], BELOW)


def test_a_bandwidth_no_centre_survives_is_refused() -> None:
    with pytest.raises(DataError, match="no centre has support in the denominator: got 0 of 100"):
        us.ratios.KLIEP(bandwidth=1e-3).fit(ABOVE, BELOW)


def test_rows_that_no_centre_reaches_are_refused() -> None:
    above = ABOVE.clone()
    above[0] = 60
    with pytest.raises(DataError, match=r"numerator rows that no centre with support reaches: got 1 of 100"):
        us.ratios.KLIEP(bandwidth=0.5).fit(above, BELOW)
    with pytest.raises(DataError, match="reaches: got 1 of 100"):
        us.ratios.KLIEP(bandwidth_factors=(0.2, 0.3)).fit(above, BELOW)


def test_samples_a_classifier_never_confuses_are_refused() -> None:
    """Two blocks side by side: no row is far from the other sample, and still nothing overlaps."""
    rows = torch.rand(100, 1, generator=torch.Generator().manual_seed(0))
    below = torch.cat([rows, rows + 3])
    estimator = us.ratios.Classifier(hidden=(16,), patience=100, learning_rate=0.05, batch_size=64, steps=600)
    with pytest.raises(DataError, match="told apart without doubt"):
        estimator.fit(rows + 1.5, below)


@pytest.mark.parametrize(
    ("estimator", "settings", "told"),
    [
        (us.ratios.KLIEP, {"bandwidth": 0}, "ratios.KLIEP.bandwidth.*greater than 0"),
        (us.ratios.KLIEP, {"bandwidth": -1.5}, "got -1.5"),
        (us.ratios.ULSIF, {"bandwidth": float("nan")}, "ratios.ULSIF.bandwidth"),
        (us.ratios.ULSIF, {"bandwidth_factors": (1.0, 0.0)}, "bandwidth_factors"),
        (us.ratios.ULSIF, {"bandwidth_factors": ()}, "bandwidth_factors"),
        (us.ratios.ULSIF, {"ridge": 0}, "ridge"),
        (us.ratios.ULSIF, {"kernel": "linear", "bandwidth": 1.0}, "means nothing with kernel=linear"),
        (us.ratios.ULSIF, {"kernel": "cubic"}, "gaussian"),
        (us.ratios.RuLSIF, {"alpha": 1.0}, "ratios.RuLSIF.alpha.*less than 1"),
        (us.ratios.KLIEP, {"folds": 1}, "greater than or equal to 2"),
        (us.ratios.KLIEP, {"centres": 0}, "centres"),
        (us.ratios.KLIEP, {"centers": 10}, "no such setting. Did you mean 'centres'"),
        (us.ratios.Classifier, {"hidden": (0,)}, "hidden"),
        (us.ratios.Classifier, {"held_out": 1.0}, "held_out"),
    ],
)
def test_bad_settings_are_refused(estimator: type[us.ratios.Estimator], settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        estimator(**settings)
    with pytest.raises(ConfigError, match=told):
        estimator.parse(settings)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        us.ratios.KLIEP().bandwidth = 1.0  # type: ignore[misc]


def test_rows_of_another_width_are_refused() -> None:
    fitted = us.ratios.KLIEP(bandwidth=1.0).fit(ABOVE, BELOW)
    with pytest.raises(UnderstudyError, match="weights: wrong number of features: got 3, expected 2"):
        fitted.weights(torch.zeros(5, 3))
