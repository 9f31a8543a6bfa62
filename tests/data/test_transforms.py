"""The chain between a recording and the learner: each link alone, then their order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.data.episode import Episode
from understudy.data.formats.episode_lists import episodes_from
from understudy.data.recording import Recording
from understudy.data.transforms import (
    Choosing,
    Mending,
    Transforms,
    choose,
    column_numbers,
    episode_returns,
    mend,
    mend_episode,
    pick,
    realign_rewards,
)
from worlds import random_episodes

BOX = Box((-2.0, 0.0), (2.0, 1.0))


def episode(steps: int = 4, **changes: Any) -> Episode:
    """Row i is told apart from every other row by its numbers."""
    rows = np.arange(steps + 1, dtype=np.float32)
    parts: dict[str, Any] = {
        "observations": {"state": np.stack([rows, 10 + rows, 20 + rows], 1)},
        "actions": np.stack([rows[:-1] / 10, rows[:-1] / 20], 1),
        "rewards": 100 + rows[:-1],
        "terminated": True,
        "truncated": False,
    }
    return Episode(**{**parts, **changes})


def mended(before: Episode, space: ActionSpace = BOX, **words: Any) -> Episode:
    return mend_episode(before, Mending.parse(words), space, "dataset 'x', episode 0")


def test_nothing_is_done_unasked() -> None:
    recording = Recording("x", 4, lambda: iter([episode()]))
    assert mend(recording, Mending(), BOX) is recording
    assert not Mending().mends()
    assert not Choosing().chooses()


@pytest.mark.parametrize(("columns", "kept"), [((-1,), [0, 1]), ((0,), [1, 2]), ((0, -1), [1]), ((2, -1), [0, 1])])
def test_columns_are_dropped(columns: tuple[int, ...], kept: list[int]) -> None:
    after = mended(episode(), drop_columns={"state": columns})
    np.testing.assert_array_equal(after.observations["state"], episode().observations["state"][:, kept])


@pytest.mark.parametrize("columns", [{"state": [3]}, {"state": [-4]}, {"other": [0]}])
def test_columns_that_are_not_there_are_told(columns: dict[str, list[int]]) -> None:
    with pytest.raises(DataError, match=r"dataset 'x', episode 0: (no such column|drop_columns: no vector group)"):
        mended(episode(), drop_columns=columns)


def test_a_time_limit_is_no_end_of_the_world() -> None:
    assert not mended(episode(4), time_limit=4).terminated
    assert mended(episode(4), time_limit=4).truncated
    assert mended(episode(3), time_limit=4).terminated  # it fell before the limit
    open_end = replace(episode(4), terminated=False)
    assert not mended(open_end, time_limit=4).truncated  # nothing is invented


def test_late_rewards_of_a_recording_with_a_last_row() -> None:
    """d4rl-pybullet: the last row carries the last reward, a final observation and no real action."""
    late = replace(
        episode(5),
        observations={"state": episode(5).observations["state"][:5]},
        final_known=False,
        extra={"row": np.arange(5)},
    )
    after = realign_rewards(late)
    assert len(after) == 4
    np.testing.assert_array_equal(after.rewards, [101, 102, 103, 104])
    np.testing.assert_array_equal(after.actions, episode(5).actions[:4])
    np.testing.assert_array_equal(after.observations["state"][:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(after.extra["row"], [0, 1, 2, 3])
    assert after.terminated
    assert after.final_known


def test_late_rewards_without_one_lose_the_last_step() -> None:
    after = realign_rewards(episode(5))
    assert len(after) == 4
    assert len(after.observations["state"]) == 5
    assert not after.terminated
    assert after.truncated


def test_an_episode_that_has_no_reward_left_is_left_out() -> None:
    recording = Recording("x", 5, lambda: iter([episode(1), episode(4)]))
    assert [len(e) for e in mend(recording, Mending(late_rewards=True), BOX).episodes()] == [3]


def test_the_recorded_range_is_mapped_onto_the_box() -> None:
    actions = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [0.5, 0.5]], np.float32)
    after = mended(episode(actions=actions), actions_from=[-1, 1])
    np.testing.assert_allclose(after.actions, np.array([[-2, 0], [0, 0.5], [2, 1], [1, 0.75]]))
    assert after.actions.dtype == np.float32
    halves = mended(episode(actions=actions), actions_from=[0, 2])
    np.testing.assert_allclose(halves.actions[2], [0, 0.5])
    with pytest.raises(DataError, match="actions_from is for continuous actions"):
        mended(episode(actions=np.zeros(4, int)), Discrete(2), actions_from=[-1, 1])
    with pytest.raises(ConfigError, match="low must be below high"):
        Mending.parse({"actions_from": [1, 1]})


def test_actions_are_clipped_after_they_are_mapped() -> None:
    wild = np.array([[8995.0, -3.0], [0.0, 0.5], [-1.0, 1.0], [2.0, 0.0]], np.float32)
    clipped = mended(episode(actions=wild), actions="clip").actions
    np.testing.assert_allclose(clipped[0], [2, 0])
    assert clipped.dtype == np.float32
    np.testing.assert_allclose(mended(episode(actions=wild), actions="clip", actions_from=[-1, 1]).actions[3], [2, 0.5])


def test_the_order_is_fixed_whatever_the_order_of_the_words() -> None:
    """The time limit is counted before the reward's row is taken away."""
    one = mended(episode(5), time_limit=5, late_rewards=True)
    other = mended(episode(5), late_rewards=True, time_limit=5)
    assert one.truncated
    assert one.rewards.tolist() == other.rewards.tolist()
    assert not mended(replace(episode(5), final_known=False), late_rewards=True, time_limit=4).truncated


RETURNS = np.array([5.0, 1.0, 9.0, 9.0, -3.0, 2.0, 7.0, 0.0, 4.0, 6.0])


def chosen(**words: Any) -> tuple[list[int], list[int]]:
    choice = choose(Choosing.parse(words), RETURNS, "dataset 'x'")
    return choice.train.tolist(), choice.validation.tolist()


def test_the_best_episodes_by_return() -> None:
    assert chosen(best_episodes=0.1) == ([2], [])  # of two equal ones the earlier
    assert chosen(best_episodes=0.3) == ([2, 3, 6], [])
    assert chosen(best_episodes=0.01) == ([2], [])  # never none
    assert chosen() == (list(range(10)), [])


@given(st.integers(1, 12), st.floats(0.1, 0.9), st.integers(0, 50), st.floats(0.2, 1.0))
@settings(max_examples=100, deadline=None)
def test_train_and_validation_never_share_an_episode(count: int, held: float, seed: int, best: float) -> None:
    words = {"max_episodes": count, "validation": held, "choice_seed": seed, "best_episodes": best}
    kept = min(count, max(1, round(best * 10)))
    if not 0 < round(held * kept) < kept:
        with pytest.raises(DataError, match="too few episodes"):
            chosen(**words)
        return
    train, validation = chosen(**words)
    assert not set(train) & set(validation)
    assert len(train) + len(validation) == kept
    assert len(validation) == round(held * kept)
    assert (train, validation) == chosen(**words)
    assert train == sorted(train)


def test_the_choice_depends_on_its_seed_alone() -> None:
    draws = {tuple(chosen(max_episodes=5, choice_seed=seed)[0]) for seed in range(20)}
    assert len(draws) > 10


def test_one_episode_cannot_be_held_out() -> None:
    with pytest.raises(DataError, match="dataset 'x': too few episodes to hold some out"):
        choose(Choosing(validation=0.5), RETURNS[:1], "dataset 'x'")


def test_picked_episodes_come_in_their_order() -> None:
    recording = Recording("x", 10, lambda: iter([episode(n) for n in (1, 2, 3, 4)]))
    assert [len(e) for e in pick(recording, np.array([3, 1])).episodes()] == [2, 4]
    np.testing.assert_array_equal(episode_returns(recording), [100, 201, 303, 406])


@pytest.mark.parametrize(
    "words",
    [
        {"best_episodes": 0},
        {"best_episodes": 1.5},
        {"validation": 1.0},
        {"time_limit": 0},
        {"max_episodes": 0},
        {"drop_column": {}},
        {"actions": "rescale"},
    ],
)
def test_bad_words_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(words))):
        Transforms.parse(words)


def test_column_numbers_count_from_both_ends() -> None:
    assert column_numbers((-1, 0, 2), 3, "x") == [0, 2]


def test_episodes_that_are_not_finite_can_be_left_out() -> None:
    """One with NaN in a state, one with infinity in a reward, one that float32 cannot hold, one whole."""
    episodes = random_episodes(4)
    episodes[0].observations["state"][3, 1] = np.nan
    episodes[1].rewards[0] = np.inf
    huge = replace(episodes[2], actions=np.full(episodes[2].actions.shape, 1e300))
    recording = episodes_from([episodes[0], episodes[1], huge, episodes[3]])
    space = Box((-1.0,) * 2, (1.0,) * 2)
    kept = list(mend(recording, Mending(not_finite="drop"), space).episodes())
    assert len(kept) == 1
    np.testing.assert_array_equal(kept[0].rewards, episodes[3].rewards)


def test_what_late_rewards_cost_is_told() -> None:
    recording = episodes_from(random_episodes(1))
    mended = mend(recording, Mending(late_rewards=True), Box((-1.0,) * 2, (1.0,) * 2))
    assert any("counts as cut off" in note for note in mended.notes)
