"""uLSIF and RuLSIF against explicit systems and explicit refits."""

import math

import pytest
import torch
from gaussians import samples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import understudy as us
from understudy.ratios.kernels import Gaussian
from understudy.ratios.leave_one_out import LeftOut, leave_one_out


def solved(above: Tensor, mass: Tensor, below: Tensor, ridge: float, alpha: float) -> Tensor:
    """θ [c] by the definition: features φ(x) [n, c], φ(y) [m, c]."""
    square = alpha * (above.T * mass) @ above + (1 - alpha) * below.T @ below / len(below)
    system = square + ridge * torch.eye(above.shape[1], dtype=torch.float64)
    theta: Tensor = torch.linalg.inv(system) @ (above.T @ mass)
    return theta.clamp(min=0)


def brute_force(above: Tensor, mass: Tensor, below: Tensor, ridge: float, alpha: float, pairs: int) -> float:
    """The score by taking each pair away and fitting anew."""
    score = 0.0
    for pair in range(pairs):
        others, lower = torch.arange(len(above)) != pair, torch.arange(len(below)) != pair
        rest = mass[others] / mass[others].sum()
        theta = solved(above[others], rest, below[lower], ridge, alpha)
        x, y = float(above[pair] @ theta), float(below[pair] @ theta)
        score += float(mass[pair] / mass[:pairs].sum()) * (alpha / 2 * x**2 - x) + (1 - alpha) / 2 * y**2 / pairs
    return score


def closed_form(above: Tensor, mass: Tensor, below: Tensor, ridge: float, alpha: float, pairs: int) -> float:
    square = alpha * (above.T * mass) @ above + (1 - alpha) * below.T @ below / len(below)
    left_out = LeftOut(above[:pairs], below[:pairs], mass[:pairs], len(below))
    return leave_one_out(left_out, square, above.T @ mass, ridge, alpha)


def features(rows: int, rows_below: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    above, below = samples(seed, max(rows, rows_below))
    kernel = Gaussian(0.7)
    return kernel.matrix(above[:rows], above[:6]), kernel.matrix(below[:rows_below], above[:6])


def even(rows: int) -> Tensor:
    return torch.full((rows,), 1 / rows, dtype=torch.float64)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(3, 25),
    rows_below=st.integers(3, 25),
    ridge=st.sampled_from([1e-2, 0.1, 1.0]),
)
def test_leaving_one_out_is_refitting_without_it(seed: int, rows: int, rows_below: int, ridge: float) -> None:
    above, below = features(rows, rows_below, seed)
    pairs = min(rows, rows_below)
    expected = brute_force(above, even(rows), below, ridge, 0.0, pairs)
    assert closed_form(above, even(rows), below, ridge, 0.0, pairs) == pytest.approx(expected, abs=1e-10)


def test_leaving_one_out_knows_weights() -> None:
    above, below = features(20, 30)
    mass = torch.arange(1, 21, dtype=torch.float64)
    mass = mass / mass.sum()
    expected = brute_force(above, mass, below, 0.1, 0.0, 20)
    assert closed_form(above, mass, below, 0.1, 0.0, 20) == pytest.approx(expected, abs=1e-10)


def test_leaving_one_out_of_the_relative_ratio_is_exact_for_samples_of_one_size() -> None:
    above, below = features(25, 25)
    for alpha in (0.1, 0.5, 0.9):
        expected = brute_force(above, even(25), below, 0.1, alpha, 25)
        assert closed_form(above, even(25), below, 0.1, alpha, 25) == pytest.approx(expected, abs=1e-10)
    above, below = features(60, 40)
    expected = brute_force(above, even(60), below, 0.1, 0.5, 40)
    assert closed_form(above, even(60), below, 0.1, 0.5, 40) == pytest.approx(expected, abs=2e-3)


def test_the_published_formula_needs_both_divisions() -> None:
    """The formula of the project's page, with and without the division that public packages leave out."""
    above, below = features(25, 25)
    expected = brute_force(above, even(25), below, 0.01, 0.0, 25)
    assert _published(above, below, 0.01, divide=True) == pytest.approx(expected, abs=1e-10)
    assert abs(_published(above, below, 0.01, divide=False) - expected) > 1e-3


def _published(above: Tensor, below: Tensor, ridge: float, divide: bool) -> float:
    count = len(above)
    system = below.T @ below / count + ridge * (count - 1) / count * torch.eye(above.shape[1], dtype=torch.float64)
    inverse, mean = torch.linalg.inv(system), above.mean(0)[:, None]
    lower, upper = below.T, above.T
    bottom = count - (lower * (inverse @ lower)).sum(0)
    first = inverse @ mean + inverse @ lower * (mean.T @ inverse @ lower / bottom)
    second = inverse @ upper + inverse @ lower * ((upper * (inverse @ lower)).sum(0) / (bottom if divide else 1))
    theta = ((count - 1) / (count * (count - 1)) * (count * first - second)).clamp(min=0)
    return float(((lower * theta).sum(0).square() / 2 - (upper * theta).sum(0)).mean())


def test_the_fit_is_the_closed_form() -> None:
    above, below = samples(0, 80)
    for alpha in (0.0, 0.3):
        estimator = us.ratios.RuLSIF(alpha=alpha, bandwidth=0.7, ridge=0.05, standardise=False, centres=80)
        fitted = estimator.fit(above, below)
        kernel, centres = Gaussian(0.7), fitted.centres
        theta = solved(kernel.matrix(above, centres), even(80), kernel.matrix(below, centres), 0.05, alpha)
        assert torch.allclose(fitted.coefficients, theta, atol=1e-10)
        expected = (kernel.matrix(below, centres) @ theta).clamp(max=1 / alpha if alpha else math.inf)
        assert torch.allclose(fitted.weights(below), expected, atol=1e-12)


def test_without_mixing_the_relative_ratio_is_the_plain_one() -> None:
    above, below = samples(0, 200, features=2)
    plain, relative = us.ratios.ULSIF().fit(above, below), us.ratios.RuLSIF(alpha=0).fit(above, below)
    assert torch.equal(plain.weights(below), relative.weights(below))
    assert plain.facts == relative.facts


def test_bandwidth_and_ridge_are_those_of_the_least_score() -> None:
    above, below = samples(0, 300)
    facts = us.ratios.ULSIF(ridges=(0.01, 0.1, 10.0)).fit(above, below).facts
    best = min(facts.trials, key=lambda trial: trial.score)
    assert len(facts.trials) == 18
    assert (facts.bandwidth, facts.ridge) == (best.bandwidth, best.ridge)
    assert facts.ridge < 10
    assert facts.denominator_mean == pytest.approx(1, abs=0.2)


def test_a_bound_holds_where_the_denominator_is_thin() -> None:
    above, below = samples(0, 300)
    rows = torch.linspace(-6, 6, 200)[:, None]
    for alpha in (0.2, 0.5, 0.9):
        weights = us.ratios.RuLSIF(alpha=alpha, bandwidth=0.3, ridge=1e-6).fit(above, below).weights(rows)
        assert float(weights.max()) <= 1 / alpha


def test_linear_and_polynomial_kernels_never_give_negative_weights() -> None:
    above, below = samples(0, 300, features=2)
    for kernel in ("linear", "polynomial"):
        fitted = us.ratios.ULSIF.parse({"kernel": kernel, "ridge": 0.1}).fit(above, below)
        weights = fitted.weights(below)
        assert float(weights.min()) >= 0
        assert float(weights.std()) > 0.05
