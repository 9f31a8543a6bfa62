"""Batches against the plainest possible loop over episodes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box, Discrete
from understudy.data.dataset import DERIVED, Dataset
from understudy.data.episode import Episode
from worlds import random_dataset

GAMMA = 0.9


@st.composite
def episode_lists(draw: st.DrawFn) -> list[Episode]:
    """Episodes of 1 to 6 steps with any end; every number in them is unique."""
    counter = iter(np.linspace(0.001, 0.9, 2000).astype(np.float32))
    episodes = []
    for _ in range(draw(st.integers(1, 6))):
        steps = draw(st.integers(1, 6))
        end = draw(st.sampled_from(["terminated", "truncated", "neither"]))
        known = draw(st.booleans())
        numbers = [
            [next(counter) for _ in range(steps + known)],
            *([next(counter) for _ in range(steps)] for _ in "ar"),
        ]
        state, action, reward = (np.array(column, np.float32) for column in numbers)
        episodes.append(
            Episode({"state": state[:, None]}, action[:, None], reward, end == "terminated", end == "truncated", known)
        )
    return episodes


@dataclass
class Row:
    """One step, found by walking."""

    state: float
    action: float
    reward: float
    successor: float | None
    terminated: bool
    td_valid: bool
    discount: float
    next_action: float | None


def walk(episodes: list[Episode], horizon: int) -> list[Row]:
    """Windows stop at the horizon, with the episode, or at the last observation that is known."""
    rows = []
    for episode in episodes:
        states = episode.observations["state"][:, 0].tolist()
        actions, rewards = episode.actions[:, 0].tolist(), episode.rewards.tolist()
        for first in range(len(episode)):
            total, last = 0.0, first
            for step in range(first, min(first + horizon, len(episode))):
                if step > first and step + 1 >= len(states) and not episode.terminated:
                    break
                total += GAMMA ** (step - first) * rewards[step]
                last = step
            at_end = last == len(episode) - 1
            successor = states[last + 1] if last + 1 < len(states) else None
            terminated = at_end and episode.terminated
            rows.append(
                Row(
                    states[first],
                    actions[first],
                    total,
                    successor,
                    terminated,
                    successor is not None or terminated,
                    GAMMA ** (last - first + 1),
                    None if at_end else actions[last + 1],
                )
            )
    return rows


@settings(max_examples=120, deadline=None)
@given(episode_lists(), st.integers(1, 5))
def test_rows_are_what_a_walk_finds(episodes: list[Episode], horizon: int) -> None:
    dataset = Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)))
    expected = walk(episodes, horizon)
    assert dataset.steps == len(expected)
    index = torch.randint(len(expected), (3 * len(expected),), generator=torch.Generator().manual_seed(0))
    batch = dataset.rows(index, Demand(DERIVED, horizon, GAMMA))
    for place, number in enumerate(index.tolist()):
        row = expected[number]
        assert batch.obs["state"][place].item() == row.state
        assert batch.action[place].item() == row.action
        assert batch.reward[place].item() == pytest.approx(row.reward, rel=1e-6)
        assert bool(batch.terminated[place]) is row.terminated
        assert bool(batch.extra["td_valid"][place]) is row.td_valid
        assert batch.extra["discount"][place].item() == pytest.approx(row.discount, rel=1e-6)
        assert batch.extra["row"][place].item() == number
        if row.successor is not None:
            assert batch.next_obs["state"][place].item() == row.successor
        assert bool(batch.extra["next_action_valid"][place]) is (row.next_action is not None)
        if row.next_action is not None:
            assert batch.extra["next_action"][place].item() == row.next_action


def test_types_and_shapes() -> None:
    batch = random_dataset().rows(torch.tensor([0, 5, 119]), Demand(DERIVED, 3))
    assert batch.obs["state"].shape == batch.next_obs["state"].shape == (3, 3)
    assert batch.action.shape == batch.extra["next_action"].shape == (3, 2)
    assert batch.reward.dtype == batch.extra["discount"].dtype == torch.float32
    assert batch.terminated.dtype == batch.extra["td_valid"].dtype == torch.bool
    assert {value.shape[0] for value in batch.extra.values()} == {3}


def test_a_time_limit_keeps_its_true_successor_and_its_value() -> None:
    states = np.arange(4, dtype=np.float32)[:, None] / 10
    stopped = Episode({"state": states}, np.zeros((3, 1), np.float32), np.ones(3, np.float32), False, True)
    ended = replace(stopped, terminated=True, truncated=False)
    batch = Dataset.from_episodes([stopped, ended], Box((-1.0,), (1.0,))).rows(torch.tensor([2, 5]), Demand())
    assert batch.next_obs["state"][:, 0].tolist() == pytest.approx([0.3, 0.3])
    assert batch.terminated.tolist() == [False, True]


@pytest.mark.parametrize(("horizon", "valid"), [(1, [1, 1, 0, 1, 0]), (2, [1, 0, 0, 1, 0]), (9, [0, 0, 0, 1, 0])])
def test_a_next_action_is_valid_inside_its_own_episode_only(horizon: int, valid: list[int]) -> None:
    """Also not after an episode that was merely cut: what follows in the file is somebody else's action. A window that
    ends with the last known observation has the action that was taken there."""
    batch = with_choices().rows(torch.arange(5), Demand(("next_action", "next_action_valid"), horizon))
    assert batch.extra["next_action_valid"].tolist() == [bool(flag) for flag in valid]
    assert batch.extra["next_action_valid"].dtype == torch.bool


def test_only_demanded_columns_come_along() -> None:
    dataset = random_dataset()
    assert dict(dataset.rows(torch.tensor([0]), Demand()).extra) == {}
    assert set(dataset.rows(torch.tensor([0]), Demand(("row",), 2)).extra) == {"row"}


@pytest.mark.parametrize("horizon", [1, 3])
def test_an_unknown_column_is_refused(horizon: int) -> None:
    with pytest.raises(DataError, match=r"column 'discont': no such column of a dataset. Did you mean 'discount'\?"):
        random_dataset().rows(torch.tensor([0]), Demand(("discont",), horizon))


def test_bytes_stay_bytes_in_a_batch() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    episode = Episode({"image": image}, np.zeros((2, 1)), np.array([1, 0], np.uint8), True, False)
    batch = Dataset.from_episodes([episode], Box((-1.0,), (1.0,))).rows(torch.tensor([0]), Demand((), 2, 0.5))
    assert batch.obs["image"].dtype == torch.uint8
    assert batch.next_obs["image"].flatten().tolist() == [8, 9, 10, 11]
    assert batch.reward.tolist() == [1.0]


def with_choices() -> Dataset:
    """Two episodes, of three and two steps, with masks, a log-probability and wide numbers."""
    masks = np.array([[1, 1], [0, 1], [1, 1], [0, 0]], bool), np.array([[1, 0], [1, 1]], bool)
    one = Episode(
        {"state": np.arange(4.0)[:, None]},
        np.array([0, 1, 1]),
        np.ones(3),
        True,
        False,
        mask=masks[0],
        extra={"behaviour_log_prob": np.array([-1.0, -2.0, -3.0]), "step": np.arange(3)},
    )
    other = Episode(
        {"state": 10 + np.arange(2.0)[:, None]},
        np.array([0, 0]),
        np.ones(2),
        False,
        True,
        final_known=False,
        mask=masks[1],
        extra={"behaviour_log_prob": np.array([-4.0, -5.0]), "step": np.arange(2)},
    )
    return Dataset.from_episodes([one, other], Discrete(2), precision="source")


def test_masks_follow_their_observations() -> None:
    batch = with_choices().rows(torch.arange(5), Demand(("mask", "next_mask")))
    assert batch.extra["mask"].tolist() == [[True, True], [False, True], [True, True], [True, False], [True, True]]
    assert batch.extra["next_mask"][:4].tolist() == [[False, True], [True, True], [False, False], [True, True]]
    assert batch.action.dtype == torch.int64


def test_the_next_mask_of_a_longer_window_is_that_of_its_end() -> None:
    batch = with_choices().rows(torch.tensor([0, 1]), Demand(("mask", "next_mask", "step"), 2, 0.9))
    assert batch.extra["mask"].tolist() == [[True, True], [False, True]]
    assert batch.extra["next_mask"].tolist() == [[True, True], [False, False]]
    assert batch.extra["step"].tolist() == [0, 1]


def test_wide_numbers_are_handed_out_in_float32() -> None:
    dataset = with_choices()
    batch = dataset.rows(torch.arange(5), Demand(("behaviour_log_prob",)))
    assert dataset.observations["state"].dtype == torch.float64
    assert batch.obs["state"].dtype == batch.reward.dtype == batch.extra["behaviour_log_prob"].dtype == torch.float32
    assert batch.extra["behaviour_log_prob"].tolist() == [-1, -2, -3, -4, -5]


def test_a_mask_that_was_not_recorded_is_missed_in_words() -> None:
    with pytest.raises(DataError, match=r"dataset 'random', column 'mask': no such column"):
        random_dataset().rows(torch.tensor([0]), Demand(("mask",)))
    with pytest.raises(DataError, match="Did you mean 'behaviour_log_prob'"):
        with_choices().rows(torch.tensor([0]), Demand(("behavior_log_prob",)))


def test_a_column_can_be_added_afterwards() -> None:
    dataset = random_dataset()
    before = dataset.fingerprint
    weighted = dataset.with_extra("priority", torch.arange(dataset.steps) / 7)
    assert weighted.rows(torch.tensor([5]), Demand(("priority",))).extra["priority"].tolist() == [pytest.approx(5 / 7)]
    assert weighted.fingerprint != before == dataset.fingerprint
    assert "priority" not in dataset.extra
    for name, count in (("priority", 3), ("row", dataset.steps)):
        with pytest.raises(DataError, match="cannot be added"):
            dataset.with_extra(name, torch.ones(count))


def test_episodes_come_back_as_they_went_in() -> None:
    dataset = with_choices()
    again = Dataset.from_episodes(dataset.recording().episodes(), Discrete(2), precision="source")
    assert again.fingerprint == dataset.fingerprint
    assert not again.episode(1).final_known
    assert len(again.episode(1).observations["state"]) == 2
