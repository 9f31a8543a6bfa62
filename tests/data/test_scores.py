"""Normalised scores: known numbers, never clipped."""

import re

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.data.formats.minari.published import Published, minari_datasets, minari_families
from understudy.data.scores import (
    environment_scores,
    episode_cap,
    normalized_score,
    normalized_spread,
    reference,
    reference_scores,
)

IDS = [*reference_scores(), *environment_scores()]
RETURNS = st.floats(-1e6, 1e6)


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


@pytest.mark.parametrize("name", IDS)
def test_random_play_is_0_and_the_expert_100(name: str) -> None:
    low, high = reference(name)
    assert low < high
    assert normalized_score(name, low) == 0.0
    assert normalized_score(name, high) == 100.0
    assert normalized_spread(name, high - low) == 100.0


@given(st.sampled_from(IDS), st.lists(RETURNS, min_size=2, max_size=8))
def test_scoring_and_summarising_commute(name: str, returns: list[float]) -> None:
    """The mean of scores is the score of the mean, and their deviation the spread of the deviation."""
    scores = [normalized_score(name, value) for value in returns]
    tolerance = 1e-9 * max(1.0, *map(abs, scores))
    assert np.mean(scores) == pytest.approx(normalized_score(name, float(np.mean(returns))), abs=tolerance)
    assert np.std(scores) == pytest.approx(normalized_spread(name, float(np.std(returns))), abs=tolerance)


@given(st.sampled_from(IDS), RETURNS, RETURNS)
def test_scores_keep_the_order_of_returns(name: str, one: float, other: float) -> None:
    assert (one <= other) == (normalized_score(name, one) <= normalized_score(name, other)) or one == pytest.approx(
        other, abs=1e-6
    )


FITTING = "metadata may hold one (ref_min_score, ref_max_score): give your own: env.reference=[low, high]."
REFUSED = {
    **dict.fromkeys((name for name in minari_datasets() if name.startswith("mujoco/")), FITTING),
    **dict.fromkeys((name for name in minari_datasets() if "maze/" in name or "minigrid/" in name), FITTING),
    "Hopper-v5": "the step that falls",
    "Walker2d-v5": "friction",
    "Ant-v4": "contact forces",
    "Ant-v5": "contact forces",
    "AntMaze_UMaze-v4": "go on after the goal",
    "PointMaze_UMaze-v3": "not those of D4RL's maze2d",
    "FrankaKitchen-v1": "all seven tasks",
    "AdroitHandPen-v1": "200 steps",
    "AdroitHandDoorSparse-v1": "dense reward",
    "AntBulletEnv-v0": "disagree about random play",
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_do_not_fit_are_not_given(name: str) -> None:
    with pytest.raises(DataError, match="D4RL's numbers do not fit, because") as caught:
        normalized_score(name, 1.0)
    assert REFUSED[name] in str(caught.value)
    assert str(caught.value).endswith("ive your own: env.reference=[low, high].")


def test_what_is_like_nothing_is_told_the_families() -> None:
    with pytest.raises(DataError, match="not known") as caught:
        episode_cap("zzz")
    assert "halfcheetah, hopper, walker2d, ant, antmaze, kitchen" in str(caught.value)
    assert "understudy list datasets" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_ones_own_range_must_be_one() -> None:
    with pytest.raises(DataError, match=r"got \[3.0, 3.0\], expected low below high"):
        normalized_score((3.0, 3.0), 1.0)


def test_minari_ids_with_a_reference_are_in_its_catalogue() -> None:
    known = {name for name in reference_scores() if name.startswith("D4RL/")}
    assert known == {name for name in minari_datasets() if re.match("D4RL/(pen|hammer|door|relocate|kitchen)/", name)}


def test_the_catalogue_of_minari() -> None:
    entries = minari_datasets()
    assert len(entries) == 63
    assert entries["D4RL/pen/expert-v2"] == Published("D4RL/pen/expert-v2", 499_206, 4_958, "AdroitHandPen-v1")
    assert entries["mujoco/ant/expert-v0"] == Published("mujoco/ant/expert-v0", 2_000_000, 2_026, "Ant-v5")
    assert all(entry.steps >= entry.episodes > 0 for entry in entries.values())
    assert [(family.ids.split("/")[0], family.count) for family in minari_families()] == [
        ("atari", 57),
        ("metaworld", 50),
        ("minigrid", 87),
        ("minigrid", 87),
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_cheetah_of_v5_pays_and_moves_as_one_of_v4() -> None:
    """Why HalfCheetah-v5 may use D4RL's numbers."""
    pytest.importorskip("mujoco")
    old, new = gymnasium.make("HalfCheetah-v4"), gymnasium.make("HalfCheetah-v5")
    rng = np.random.default_rng(0)
    assert np.array_equal(old.reset(seed=1)[0], new.reset(seed=1)[0])
    for _ in range(200):
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        (before, paid, *_), (after, due, *_) = old.step(action), new.step(action)
        assert np.array_equal(before, after)
        assert paid == due
