"""Episodes one by one: from any number on, they are the same."""

from itertools import islice

import numpy as np
import pytest

from understudy import make_dataset
from understudy.core.errors import ConfigError
from understudy.data.episode import Episode
from understudy.sources.playing.collect import play
from worlds import pendulum_recipe

CARTPOLE = {"env": "CartPole-v1", "episodes": 6, "behaviours": [{"policy": "random"}]}


def silent(done: int, note: str) -> None:
    pass


def equal(one: Episode, other: Episode) -> bool:
    return (
        np.array_equal(one.observations["state"], other.observations["state"])
        and np.array_equal(one.actions, other.actions)
        and np.array_equal(one.rewards, other.rewards)
    )


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 9])
def test_playing_on_from_an_episode_gives_the_rest(first: int) -> None:
    recipe = pendulum_recipe()  # two random episodes, two scripted ones
    whole, rest = list(play(recipe, [], silent)), list(play(recipe, [], silent, first=first))
    assert len(rest) == max(4 - first, 0)
    assert all(map(equal, rest, whole[first:]))


def test_progress_counts_what_is_done_in_all() -> None:
    told: list[tuple[int, str]] = []
    list(play(pendulum_recipe(), [], lambda done, note: told.append((done, note)), first=1))
    assert told == [(2, "random"), (3, "scripted"), (4, "scripted")]


def test_an_episode_is_played_when_asked_for() -> None:
    told: list[int] = []
    episodes = play(pendulum_recipe(episodes=1000), [], lambda done, note: told.append(done))
    assert len(list(islice(episodes, 2))) == 2
    assert told == [1]


def test_discrete_actions_are_played_by_chance() -> None:
    dataset = make_dataset(pendulum_recipe(**CARTPOLE))
    assert dataset.episodes == 6
    assert dataset.index.terminated.all()
    assert set(dataset.actions.flatten().tolist()) == {0, 1}


def test_discrete_actions_have_no_noise() -> None:
    behaviour = {"policy": "run", "run": "nowhere", "checkpoint": "3", "noise": 0.5}
    with pytest.raises(ConfigError, match=r"noise is for continuous actions, 'CartPole-v1' has none. Use epsilon."):
        make_dataset(pendulum_recipe(**{**CARTPOLE, "behaviours": [behaviour]}))
