"""KLIEP beyond the golden numbers: choice of the bandwidth, pruning, weighted numerators, determinism."""

import math

import pytest
import torch
from gaussians import samples

import understudy as us
from understudy.core.errors import UnderstudyError
from understudy.core.rng import stream
from understudy.ratios.kernels import Gaussian
from understudy.ratios.problem import fold_numbers


def test_folds_are_disjoint_and_even() -> None:
    folds = fold_numbers(103, 5, "here", torch.Generator().manual_seed(0))
    assert sorted(int((folds == fold).sum()) for fold in range(5)) == [20, 20, 21, 21, 21]
    assert not torch.equal(folds, torch.arange(103) % 5), "in the order of the file"


def test_the_bandwidth_is_the_one_that_does_best_on_rows_not_seen() -> None:
    above, below = samples(0, 400)
    fitted = us.ratios.KLIEP().fit(above, below)
    trials = fitted.facts.trials
    assert len(trials) == 6
    assert fitted.facts.bandwidth == max(trials, key=lambda trial: trial.score).bandwidth
    held_in = us.ratios.KLIEP(bandwidth=trials[0].bandwidth or 0.0).fit(above, below).facts.objective
    assert held_in > fitted.facts.objective, "the narrowest is best on rows it was fitted on"
    assert trials[0].score < max(trial.score for trial in trials)


def test_a_score_is_that_of_explicit_refits() -> None:
    above, below = samples(1, 60)
    settings = us.ratios.KLIEP(bandwidth_factors=(0.5, 1.0), folds=3, standardise=False, centres=500, tolerance=1e-9)
    trial = settings.fit(above, below, seed=4).facts.trials[0]
    kernel = Gaussian(trial.bandwidth or 0.0)
    folds = fold_numbers(60, 3, "here", stream(4, "ratio folds"))
    scores = []
    for fold in range(3):
        inside, outside = above[folds != fold], above[folds == fold]
        scores.append(_em_by_hand(kernel, above, inside, below, outside))
    assert trial.score == pytest.approx(sum(scores) / 3, abs=2e-3)


def _em_by_hand(
    kernel: Gaussian, centres: torch.Tensor, inside: torch.Tensor, below: torch.Tensor, outside: torch.Tensor
) -> float:
    support = kernel.matrix(below, centres).mean(0)
    centres, support = centres[support >= 1e-3], support[support >= 1e-3]
    mixing = kernel.matrix(inside, centres) / support
    beta = torch.full((len(centres),), 1 / len(centres), dtype=torch.float64)
    for _ in range(3000):
        beta = beta * (mixing / (mixing @ beta)[:, None]).mean(0)
    return float((kernel.matrix(outside, centres) @ (beta / support)).log().mean())


def test_both_solvers_end_at_one_ratio() -> None:
    above, below = samples(2, 300)
    one = us.ratios.KLIEP(bandwidth=0.7, tolerance=1e-4).fit(above, below)
    two = us.ratios.KLIEP(bandwidth=0.7, tolerance=1e-4, solver="em").fit(above, below)
    assert one.facts.certificate <= 1e-4
    assert two.facts.certificate <= 1e-4
    assert abs(one.facts.objective - two.facts.objective) <= 1e-4
    assert two.facts.iterations > 10 * one.facts.iterations


def test_too_few_iterations_are_told() -> None:
    above, below = samples(2, 300)
    with pytest.warns(UserWarning, match="not solved as far as asked"):
        fitted = us.ratios.KLIEP(bandwidth=0.7, solver="em", iterations=3).fit(above, below)
    assert fitted.facts.certificate > 1e-6


@pytest.mark.parametrize(
    "estimator", [us.ratios.KLIEP(bandwidth=0.7, tolerance=1e-10), us.ratios.ULSIF(bandwidth=0.7, ridge=0.1)]
)
def test_weights_of_the_numerator_are_repeated_rows(estimator: us.ratios.Estimator) -> None:
    above, below = samples(5, 60)
    counts = torch.arange(60) % 3
    weighed = estimator.fit(above, below, numerator_weights=counts.double() * 7).weights(below)
    repeated = estimator.fit(above.repeat_interleave(counts, 0), below).weights(below)
    assert torch.allclose(weighed, repeated, atol=1e-5 if isinstance(estimator, us.ratios.KLIEP) else 1e-12)
    plain = estimator.fit(above, below).weights(below)
    assert not torch.allclose(weighed, plain, atol=1e-2)


def test_centres_without_support_are_dropped() -> None:
    """A few rows of the numerator where the denominator never is: a centre there would take α = β/b without bound."""
    above, below = samples(0, 200)
    above[:10, 0] = torch.linspace(7.0, 7.5, 10)
    fitted = us.ratios.KLIEP(bandwidth=0.7, standardise=False, centres=200).fit(above, below)
    assert fitted.facts.centres_dropped >= 10
    assert fitted.facts.centres_kept + fitted.facts.centres_dropped == 200
    assert fitted.facts.unreached == pytest.approx(0.05)
    kept_all = us.ratios.KLIEP(bandwidth=0.7, standardise=False, centres=200, prune=0).fit(above, below)
    beyond = torch.tensor([[7.2]])
    assert float(kept_all.weights(beyond)) > 1e6 > float(fitted.weights(beyond))


def test_the_seed_decides_everything() -> None:
    above, below = samples(0, 300, features=3)
    settings = us.ratios.KLIEP(centres=40)
    before = torch.random.get_rng_state()
    one, same, other = (settings.fit(above, below, seed=seed).weights(below) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_units_do_not_matter() -> None:
    above, below = samples(0, 300, features=2)
    units = torch.tensor([1000.0, 0.001], dtype=torch.float64)
    plain = us.ratios.KLIEP().fit(above, below).weights(below)
    scaled = us.ratios.KLIEP().fit(above * units + 5, below * units + 5).weights(below * units + 5)
    assert torch.allclose(plain, scaled, rtol=1e-3)


def test_an_even_polynomial_works_and_keeps_the_constraint() -> None:
    above, below = samples(0, 300, features=2)
    fitted = us.ratios.KLIEP(kernel="polynomial", degree=2).fit(above, below)
    assert fitted.facts.bandwidth is None
    assert float(fitted.weights(below).mean()) == pytest.approx(1, abs=1e-12)
    assert fitted.facts.objective > 0.02


@pytest.mark.parametrize("kernel", [{"kernel": "linear"}, {"kernel": "polynomial", "degree": 3}])
def test_kernels_that_can_be_negative_are_refused(kernel: dict[str, object]) -> None:
    with pytest.raises(UnderstudyError, match="can be negative"):
        us.ratios.KLIEP.parse(kernel)


def test_a_fitted_ratio_cannot_be_changed() -> None:
    fitted = us.ratios.KLIEP(bandwidth=0.7).fit(*samples(0, 100))
    with pytest.raises(AttributeError):
        fitted.ceiling = 1.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        fitted.facts.bandwidth = 2.0  # type: ignore[misc]
    assert math.isclose(fitted.facts.bandwidth or 0.0, 0.7)
