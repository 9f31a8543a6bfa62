"""A recipe's shares become counts that add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.errors import ConfigError
from understudy.data.recipes import Recipe, RunPolicy
from worlds import pendulum_recipe

SHARES = st.lists(st.floats(min_value=1e-300, max_value=1e308), min_size=1, max_size=8)


def recipe(shares: list[float], episodes: int) -> Recipe:
    behaviours = [{"policy": "random", "share": share} for share in shares]
    return Recipe.parse({"env": "Pendulum-v1", "episodes": episodes, "behaviours": behaviours})


@given(SHARES, st.integers(1, 10_000))
def test_counts_add_up_and_follow_the_shares(shares: list[float], episodes: int) -> None:
    counts = recipe(shares, episodes).counts()
    assert sum(counts) == episodes
    largest = max(shares)
    total = sum(share / largest for share in shares)
    for share, count in zip(shares, counts, strict=True):
        assert abs(count - episodes * (share / largest) / total) < 1 + 1e-6


@pytest.mark.parametrize(
    ("shares", "episodes", "counts"),
    [([1, 1], 5, [3, 2]), ([2, 1, 1], 8, [4, 2, 2]), ([1, 1, 1], 1, [1, 0, 0]), ([0.7, 0.2, 0.1], 10, [7, 2, 1])],
)
def test_counts_of_known_shares(shares: list[float], episodes: int, counts: list[int]) -> None:
    assert recipe(shares, episodes).counts() == counts


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"behaviours": []}, "behaviours: wrong value"),
        ({"behaviours": [{"policy": "dance"}]}, "behaviours.0.policy: no such policy: got 'dance'"),
        ({"behaviours": [{"policy": "scripted", "skil": 1}]}, "skil: no such setting"),
        ({"behaviours": [{"policy": "random", "noise": 1}]}, "noise: no such setting"),
        ({"behaviours": [{"policy": "scripted", "skill": 2}]}, "skill: wrong value: got 2"),
        ({"behaviours": [{"policy": "random", "share": 0}]}, "share: wrong value: got 0"),
        ({"behaviours": [{"policy": "random", "share": True}]}, "share: wrong value: got true"),
        ({"behaviours": [{"policy": "run"}]}, "run: is required"),
        ({"episodes": 0}, "episodes: wrong value: got 0"),
        ({"seed": -1}, "seed: wrong value: got -1"),
        ({"sed": 1}, "sed: no such setting. Did you mean 'seed'?"),
    ],
)
def test_a_wrong_recipe_is_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        pendulum_recipe(**change)


@pytest.mark.parametrize(
    ("checkpoint", "kept"), [("medium", "medium"), ("expert", "expert"), (3000, "3000"), ("007", "7")]
)
def test_a_checkpoint_is_a_level_or_a_number(checkpoint: object, kept: str) -> None:
    behaviour = pendulum_recipe(behaviours=[{"policy": "run", "run": "x", "checkpoint": checkpoint}]).behaviours[0]
    assert isinstance(behaviour, RunPolicy)
    assert behaviour.checkpoint == kept


@pytest.mark.parametrize("checkpoint", ["medum", "-1", "1.5", "", "٣", "random"])
def test_another_level_is_refused(checkpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint: no level .* (Did you mean|Known: best)"):
        pendulum_recipe(behaviours=[{"policy": "run", "run": "x", "checkpoint": checkpoint}])


def test_a_behaviour_spreads_its_share_over_checkpoints() -> None:
    spread = RunPolicy(run="x", checkpoint="full-replay", share=6, noise=0.1).at([5, 10, 20])
    assert [(part.checkpoint, part.share, part.noise) for part in spread] == [
        ("5", 2.0, 0.1),
        ("10", 2.0, 0.1),
        ("20", 2.0, 0.1),
    ]
