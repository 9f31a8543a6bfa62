"""O-39: returns in units of random and expert play."""

import pytest

from understudy import normalized_score
from understudy.data.scores import normalized_spread

SCORES = [
    ("halfcheetah-medium-v2", 5000.0, 42.5300),
    ("hopper-medium-v2", 2000.0, 62.0749),
    ("walker2d-medium-v2", 3500.0, 76.2061),
    ("bullet-halfcheetah-medium-v0", 830.0, 57.5749),
]


@pytest.mark.parametrize(("name", "value", "score"), SCORES)
def test_known_scores(name: str, value: float, score: float) -> None:
    assert normalized_score(name, value) == pytest.approx(score, abs=5e-5)


def test_scores_are_never_clipped() -> None:
    assert normalized_score((10.0, 20.0), 30.0) == pytest.approx(200.0)
    assert normalized_score((10.0, 20.0), 5.0) == pytest.approx(-50.0)


def test_spread_is_scaled_and_not_shifted() -> None:
    difference = normalized_score("hopper-medium-v2", 2100.0) - normalized_score("hopper-medium-v2", 2000.0)
    assert normalized_spread("hopper-medium-v2", 100.0) == pytest.approx(difference)
