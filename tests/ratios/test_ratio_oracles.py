"""Golden numbers of density ratios: O-25 to O-29 of the project's table, and what the uncorrected forms give."""

import math

import pytest
import torch
from gaussians import KL, correlation, error, grid, samples, true_ratio, true_relative

import understudy as us

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_kliep_finds_the_ratio_of_two_normals(seed: int) -> None:
    above, below = samples(seed)
    fitted = us.ratios.KLIEP(bandwidth=0.7, standardise=False).fit(above, below, seed=seed)
    assert abs(float(fitted.weights(below).mean()) - 1) < 1e-12
    assert error(fitted.weights(grid()), true_ratio(grid())) < 0.45
    assert correlation(fitted.weights(grid()), true_ratio(grid())) > 0.85
    assert abs(fitted.facts.objective - KL) < 0.04


def test_kliep_of_one_distribution_is_about_one_everywhere() -> None:
    generator = torch.Generator().manual_seed(0)
    above, below = (torch.randn(1000, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    fitted = us.ratios.KLIEP(bandwidth=2.0, standardise=False).fit(above, below)
    weights = fitted.weights(below)
    assert float(weights.min()) > 0.8
    assert float(weights.max()) < 1.4
    assert abs(fitted.facts.objective) < 0.02


def test_the_uncorrected_estimator_weighs_equal_samples_unequally() -> None:
    """Fitted on a sample against itself, the ratio is 1. Σα = 1 gives a density instead: rare rows lose."""
    _, rows = samples(0)
    with pytest.warns(UserWarning, match="sum_alpha"):
        fitted = us.ratios.KLIEP(bandwidth=1.0, normalisation="sum_alpha", standardise=False).fit(rows, rows)
    weights = us.ratios.normalise(fitted.weights(rows))
    assert float(weights.min()) < 0.03
    right = us.ratios.KLIEP(bandwidth=1.0, standardise=False).fit(rows, rows).weights(rows)
    assert float(right.min()) > 20 * float(weights.min())


def test_the_uncorrected_estimator_follows_a_density_not_the_ratio() -> None:
    above, below = samples(0)
    with pytest.warns(UserWarning, match="sum_alpha"):
        wrong = us.ratios.KLIEP(bandwidth=0.3, normalisation="sum_alpha", standardise=False).fit(above, below)
    log_weights = wrong.weights(grid()).log()
    log_density = -((grid()[:, 0] - 0.5) / 0.8).square() / 2
    assert correlation(log_weights, log_density) > 0.9
    assert correlation(log_weights, log_density) > correlation(log_weights, true_ratio(grid()).log()) + 0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_rulsif_finds_the_relative_ratio(seed: int) -> None:
    above, below = samples(seed)
    fitted = us.ratios.RuLSIF(alpha=0.5, bandwidth=0.7, ridge=0.1, standardise=False).fit(above, below, seed=seed)
    found, truth = fitted.weights(grid()), true_relative(grid(), 0.5)
    assert correlation(found, truth) > 0.80
    assert error(found, truth) < 0.3
    assert float(found.max()) <= 2
    assert math.isclose(float(truth.max()), 1.2777, abs_tol=1e-3)


@pytest.mark.parametrize("estimator", [us.ratios.KLIEP(), us.ratios.ULSIF(), us.ratios.Classifier(hidden=(16,))])
def test_every_estimator_finds_the_ratio_with_its_own_choices(
    estimator: us.ratios.Estimator,
) -> None:
    above, below = samples(3)
    found = estimator.fit(above, below).weights(grid())
    assert error(found, true_ratio(grid())) < 0.35
    assert correlation(found, true_ratio(grid())) > 0.9
