"""Normalised scores: known numbers, never clipped."""

import pytest

from understudy.core.errors import DataError
from understudy.data.scores import normalized_score, normalized_spread, reference, reference_scores


@pytest.mark.parametrize(
    ("name", "value", "score"),
    [
        ("halfcheetah-medium-v2", 5000.0, 42.5300),
        ("hopper-medium-v2", 2000.0, 62.0749),
        ("walker2d-medium-v2", 3500.0, 76.2061),
        ("bullet-halfcheetah-medium-v0", 830.0, 57.5749),
    ],
)
def test_known_scores(name: str, value: float, score: float) -> None:
    assert normalized_score(name, value) == pytest.approx(score, abs=5e-5)


def test_the_ends_of_the_scale_and_beyond() -> None:
    assert normalized_score((10.0, 30.0), 10.0) == 0.0
    assert normalized_score((10.0, 30.0), 30.0) == 100.0
    assert normalized_score((10.0, 30.0), 50.0) == 200.0
    assert normalized_score((10.0, 30.0), -10.0) == -100.0


def test_a_spread_is_scaled_and_never_shifted() -> None:
    assert normalized_spread((10.0, 30.0), 0.0) == 0.0
    assert normalized_spread((10.0, 30.0), 5.0) == 25.0
    low, high = reference("hopper-medium-v2")
    assert normalized_spread("hopper-medium-v2", high - low) == pytest.approx(100.0)


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(DataError, match=r"'hopper-medum-v2': not known. Did you mean 'hopper-medium-v2'\?"):
        normalized_score("hopper-medum-v2", 1.0)


def test_every_reference_is_a_range() -> None:
    table = reference_scores()
    assert len(table) > 100
    assert all(low < high for low, high in table.values())
    assert table["antmaze-large-play-v2"] == (0.0, 1.0)
