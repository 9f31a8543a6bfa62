"""The classifier's ratio."""

import math

import pytest
import torch
from gaussians import correlation, samples, true_ratio

import understudy as us


def test_it_averages_one_and_beats_kernels_in_many_dimensions() -> None:
    above, below = samples(0, 1000, features=11)
    _, fresh = samples(1, 1500, features=11)
    classifier = us.ratios.Classifier().fit(above, below)
    assert float(classifier.weights(below).mean()) == pytest.approx(1, abs=1e-9)
    kernel = us.ratios.ULSIF().fit(above, below)
    found = correlation(classifier.weights(fresh), true_ratio(fresh))
    assert found > 0.6
    assert found > correlation(kernel.weights(fresh), true_ratio(fresh))


def test_the_kept_step_is_the_best_on_held_out_rows() -> None:
    facts = us.ratios.Classifier(steps=400, check_every=20).fit(*samples(0, 300)).facts
    assert facts.losses[0][0] == 0
    assert facts.losses[0][1] == pytest.approx(math.log(2))
    assert (facts.best_step, facts.held_out_loss) == min(facts.losses, key=lambda pair: pair[1])
    assert facts.held_out_loss < math.log(2) - 0.02


def test_it_stops_when_nothing_gets_better() -> None:
    settings = us.ratios.Classifier(hidden=(64,), weight_decay=0, patience=2, check_every=25, steps=3000)
    facts = settings.fit(*samples(0, 200, features=2)).facts
    assert facts.losses[-1][0] == facts.best_step + 50 < 3000


def test_samples_of_different_sizes_do_not_tilt_it() -> None:
    """Twenty times as many rows below: w = exp(logit)·(m/n) must stay a ratio of densities."""
    above, below = samples(0, 2000)
    few = us.ratios.Classifier(hidden=()).fit(above[:100], below)
    level = few.weights(torch.zeros(1, 1)) / us.ratios.Classifier(hidden=()).fit(above, below).weights(
        torch.zeros(1, 1)
    )
    assert 0.8 < float(level) < 1.25


def test_weights_of_the_numerator_move_it() -> None:
    above, below = samples(0, 1000)
    low = (above[:, 0] < 0).double()
    weights = (
        us.ratios.Classifier(hidden=()).fit(above, below, numerator_weights=low).weights(torch.tensor([[-1.0], [1.0]]))
    )
    assert float(weights[0]) > float(weights[1])


def test_the_seed_decides_everything() -> None:
    above, below = samples(0, 200, features=2)
    settings = us.ratios.Classifier(steps=100)
    before = torch.random.get_rng_state()
    one, same, other = (settings.fit(above, below, seed=seed).weights(below) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_samples_nobody_can_tell_apart_get_even_weights_and_a_word_on_it() -> None:
    _, rows = samples(0, 200, features=2)
    with pytest.warns(UserWarning, match="all weights are 1"):
        fitted = us.ratios.Classifier(patience=1, learning_rate=0.1).fit(rows[:100], rows[100:])
    assert fitted.facts.best_step == 0
    assert torch.equal(fitted.weights(rows), torch.ones(200, dtype=torch.float64))
