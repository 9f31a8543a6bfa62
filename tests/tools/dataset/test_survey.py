"""A survey against brute force, whatever the blocks; broken episodes are set aside, not raised."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocations import most_allocated
from understudy import Box, Episode
from understudy.core.errors import DataError
from understudy.core.spec import Discrete
from understudy.data.recording import Recording
from understudy.tools.dataset.action_tally import BoxActions, DiscreteActions
from understudy.tools.dataset.column_tally import Place
from understudy.tools.dataset.row_hash import RowSample, hash_rows, hash_runs
from understudy.tools.dataset.survey import Survey, survey
from worlds import random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))


def recorded(episodes: Sequence[Episode], **facts: Any) -> Recording:
    steps = sum(len(episode) for episode in episodes)
    return Recording("some.npz", steps, lambda: iter(episodes), **facts)


def surveyed(episodes: Sequence[Episode], space: Any = None, **facts: Any) -> Survey:
    return survey(recorded(episodes, **facts), space)


def mixed_episodes(seed: int, lengths: Sequence[int]) -> list[Episode]:
    """Episodes of any length and kind of end, some of them without their final observation."""
    rng = np.random.default_rng(seed)
    episodes = []
    for length in lengths:
        known, ending = bool(rng.integers(2)), int(rng.integers(3))
        rows = length + known
        episodes.append(
            Episode(
                {"state": rng.standard_normal((rows, 3)) * 1e3 + 1e5, "goal": rng.integers(0, 2, (rows, 2))},
                rng.uniform(-1.2, 1.2, (length, 2)).astype(np.float32),
                rng.integers(0, 4, length).astype(np.float32),
                ending == 0,
                ending == 1,
                known,
                None,
                {"log_prob": rng.standard_normal(length)},
            )
        )
    return episodes


def joined(episodes: Sequence[Episode]) -> dict[str, np.ndarray]:
    columns = {f"observation.{name}": [e.observations[name] for e in episodes] for name in episodes[0].observations}
    columns |= {"action": [e.actions for e in episodes], "reward": [e.rewards for e in episodes]}
    columns |= {f"extra.{name}": [e.extra[name] for e in episodes] for name in episodes[0].extra}
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def test_columns_are_what_numpy_says_of_all_rows_at_once() -> None:
    episodes = mixed_episodes(0, [7, 1, 30, 12])
    facts = surveyed(episodes)
    columns = joined(episodes)
    assert set(facts.columns) == set(columns)
    for name, values in columns.items():
        column, flat = facts.columns[name], values.reshape(len(values), -1).astype(np.float64)
        assert (column.rows, column.shape, column.dtypes) == (len(values), values.shape[1:], (values.dtype.name,))
        np.testing.assert_array_equal(column.minimum, flat.min(0))
        np.testing.assert_array_equal(column.maximum, flat.max(0))
        np.testing.assert_allclose(column.mean, flat.mean(0), rtol=1e-12)
        np.testing.assert_allclose(column.std, flat.std(0), rtol=1e-9)
        assert column.non_finite == 0
        assert column.first_non_finite is None


def test_episodes_and_rewards() -> None:
    episodes = mixed_episodes(1, [7, 1, 30, 12, 5, 2])
    facts = surveyed(episodes)
    assert facts.lengths.tolist() == [7, 1, 30, 12, 5, 2]
    assert (facts.steps, facts.episodes) == (57, 6)
    np.testing.assert_allclose(facts.returns, [episode.rewards.sum() for episode in episodes])
    for flag in ("terminated", "truncated", "final_known"):
        assert getattr(facts, flag).tolist() == [getattr(episode, flag) for episode in episodes]
    rewards = np.concatenate([episode.rewards for episode in episodes])
    assert facts.rewards.distinct == (0.0, 1.0, 2.0, 3.0)
    assert facts.rewards.zeros == int((rewards == 0).sum())
    assert facts.rewards.zero_first == sum(episode.rewards[0] == 0 for episode in episodes)


def test_more_than_ten_rewards_are_not_listed() -> None:
    few, many = (random_episodes(1, count) for count in (10, 11))
    assert len(surveyed(few).rewards.distinct or ()) == 10
    assert surveyed(many).rewards.distinct is None


def test_actions_against_declared_bounds() -> None:
    episodes = mixed_episodes(2, [40, 60])
    actions = np.concatenate([episode.actions for episode in episodes]).astype(np.float64)
    found = surveyed(episodes, BOX).actions
    assert isinstance(found, BoxActions)
    outside = (np.abs(actions) > 1.0 + 1e-5).any(1)
    assert found.outside == outside.sum() > 0
    first = int(np.flatnonzero(outside)[0])
    assert found.first_outside == ((0, first) if first < 40 else (1, first - 40))
    np.testing.assert_allclose(found.at_high, (actions >= 0.98).mean(0))
    np.testing.assert_allclose(found.at_low, (actions <= -0.98).mean(0))
    assert found.largest == pytest.approx(np.abs(actions).max())


def test_the_recordings_own_space_counts_unless_another_is_given() -> None:
    episodes = random_episodes()
    assert surveyed(episodes, space=None, **{}).space is None
    assert survey(recorded(episodes, space=BOX)).space == BOX
    wide = Box((-2.0, -2.0), (2.0, 2.0))
    assert survey(recorded(episodes, space=BOX), wide).space == wide


@pytest.mark.parametrize("form", ["flat", "column", "one-hot"])
def test_choices_are_counted_in_any_form(form: str) -> None:
    choices = np.array([0, 2, 2, 1, 2])
    actions = {"flat": choices, "column": choices[:, None], "one-hot": np.eye(3)[choices]}[form]
    episode = Episode({"state": np.zeros((6, 1))}, actions, np.zeros(5), False, True)
    found = surveyed([episode], Discrete(3)).actions
    assert isinstance(found, DiscreteActions)
    assert found.counts == {0: 1, 1: 1, 2: 3}
    assert found.wrong == 0


def test_wrong_choices_are_placed() -> None:
    actions = np.array([0, 1, 5, 1.5, np.nan])
    episode = Episode({"state": np.zeros((6, 1))}, actions, np.zeros(5), False, True)
    found = surveyed([episode], Discrete(3)).actions
    assert isinstance(found, DiscreteActions)
    assert (found.wrong, found.first_wrong, found.wrong_value) == (3, (0, 2), 5.0)


def test_what_is_not_finite_is_counted_placed_and_left_out_of_the_numbers() -> None:
    episodes = mixed_episodes(3, [5, 9, 4])
    state = episodes[1].observations["state"].copy()
    state[6, 2], state[7, 0], state[8, 0] = np.nan, np.inf, 1e300
    episodes[1] = replace(episodes[1], observations={**episodes[1].observations, "state": state})
    column = surveyed(episodes).columns["observation.state"]
    assert column.non_finite == 3
    assert column.first_non_finite == Place(1, 6, 2)
    values = joined(episodes)["observation.state"]
    for number in range(3):
        finite = values[np.abs(values[:, number]) < 1e38, number]
        assert column.mean[number] == pytest.approx(finite.mean())
        assert column.std[number] == pytest.approx(finite.std())


def test_a_column_without_a_finite_value_has_no_numbers() -> None:
    episode = replace(random_episodes(1)[0], rewards=np.full(20, np.nan))
    reward = surveyed([episode]).columns["reward"]
    assert (reward.non_finite, reward.first_non_finite) == (20, Place(0, 0, 0))
    assert np.isnan([reward.mean[0], reward.std[0], reward.minimum[0]]).all()


def test_duplicates() -> None:
    episodes = random_episodes(4, 10)
    again = [*episodes, episodes[1], episodes[1]]
    facts = surveyed(again)
    assert (facts.duplicate_episodes, facts.duplicate_steps, facts.distinct_states) == (2, 20, 40)
    other = replace(episodes[1], rewards=episodes[1].rewards + np.float32(1))
    facts = surveyed([*episodes, other])
    assert (facts.duplicate_episodes, facts.duplicate_steps, facts.distinct_states) == (0, 0, 40)


def test_a_shorter_copy_is_no_duplicate_episode_but_its_steps_are() -> None:
    episode = random_episodes(1, 10)[0]
    shorter = Episode(
        {"state": episode.observations["state"][:7]}, episode.actions[:6], episode.rewards[:6], False, True
    )
    facts = surveyed([episode, shorter])
    assert (facts.duplicate_episodes, facts.duplicate_steps) == (0, 6)


def test_memory_holds_two_hashes_of_a_step_and_little_else() -> None:
    (episode,) = random_episodes(count=1, steps=5000, state=1, action=1)
    few, more = (recorded([episode] * times) for times in (20, 120))
    grown = most_allocated(lambda: survey(more)) - most_allocated(lambda: survey(few))
    assert grown < 24 * (more.steps - few.steps)


def test_hashes_tell_rows_apart_and_order_inside_runs() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (4000, 9)).astype(np.uint8)
    assert len(np.unique(hash_rows(rows))) == len(np.unique(rows, axis=0))
    for dtype in (np.float32, np.float64):
        signs = rng.choice([-1.0, 0.0, 1.0], (20_000, 9)).astype(dtype)
        assert len(np.unique(hash_rows(signs))) == len(np.unique(signs, axis=0))
    hashes = hash_rows(rng.standard_normal((4, 3)))
    forth, back = (hash_runs(order, np.array([0, 2])) for order in (hashes, hashes[[1, 0, 2, 3]]))
    assert forth[0] != back[0]
    assert forth[1] == back[1]


def test_masks() -> None:
    mask = np.array([[1, 1], [1, 0], [0, 0], [0, 1], [0, 0]])
    episode = Episode({"state": np.arange(5.0)[:, None]}, np.array([0, 1, 0, 1]), np.zeros(4), True, False, mask=mask)
    masks = surveyed([episode], Discrete(2)).masks
    assert masks is not None
    assert masks.legal == pytest.approx(0.4)
    assert (masks.forbidden, masks.first_forbidden) == (2, (0, 1))
    assert (masks.empty, masks.first_empty) == (1, (0, 2))  # the terminal state may have none


def test_time_columns_and_constant_columns() -> None:
    episodes = []
    for episode in random_episodes(3, 30):
        clock = 1 - np.arange(31) / 1000
        state = np.column_stack([episode.observations["state"], np.full(31, 2.5), clock])
        episodes.append(replace(episode, observations={"state": state}))
    facts = surveyed(episodes)
    assert facts.time_columns == {"state": 4}
    assert facts.columns["observation.state"].constant == [3]


def test_coverage_knows_a_line_from_a_ball() -> None:
    rng = np.random.default_rng(0)
    for states, dimensions in (
        (np.outer(rng.standard_normal(2001), [1, 2, 3]), 1),
        (rng.standard_normal((2001, 3)), 3),
    ):
        seen = surveyed([Episode({"state": states}, np.zeros((2000, 1)), np.zeros(2000), False, True)]).coverage
        assert seen is not None
        assert seen.columns == 3
        assert seen.dimensions == pytest.approx(dimensions, rel=0.02)
        assert 0 < seen.even < seen.visited <= 1


EPISODE = random_episodes(1, 5)[0]
BROKEN = {
    "empty": replace(EPISODE, actions=EPISODE.actions[:0], rewards=EPISODE.rewards[:0]),
    "reward-count": replace(EPISODE, rewards=EPISODE.rewards[:3]),
    "no-observations": replace(EPISODE, observations={}),
    "observation-count": replace(EPISODE, observations={"state": EPISODE.observations["state"][:3]}),
    "final-missing": replace(EPISODE, observations={"state": EPISODE.observations["state"][:5]}),
    "observations-differ": replace(EPISODE, observations={"state": EPISODE.observations["state"][:, :2]}),
    "columns-differ": replace(EPISODE, extra={"more": np.zeros(5)}),
    "column-count": replace(EPISODE, extra={"more": np.zeros(4)}),
    "actions-differ": replace(EPISODE, actions=EPISODE.actions[:, :1]),
    "action-shape": replace(EPISODE, actions=EPISODE.actions[:, :, None]),
    "masks-differ": replace(EPISODE, mask=np.ones((6, 2))),
    "mask-count": replace(EPISODE, mask=np.ones((2, 2))),
    "mask-shape": replace(EPISODE, mask=np.ones(6)),
    "no-width": replace(EPISODE, observations={"state": np.zeros((6, 0))}),
    "not-numeric": replace(EPISODE, rewards=np.array(["a"] * 5)),
    "not-rows": replace(EPISODE, rewards=np.array(1.0)),
    "both-ends": replace(EPISODE, terminated=True, truncated=True),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_episode_is_set_aside_and_the_rest_goes_on(kind: str) -> None:
    good = random_episodes(3, 8)
    facts = surveyed([*good, BROKEN[kind], BROKEN[kind], *good])
    assert [(fault.kind, fault.episode, fault.count) for fault in facts.faults] == [(kind, 3, 2)]
    kept = kind in ("final-missing", "both-ends")
    assert facts.episodes == 6 + 2 * kept
    assert facts.numbers[-1] == 7
    if kind == "final-missing":
        assert facts.final_known.tolist() == [True] * 3 + [False] * 2 + [True] * 3


def test_lists_are_as_good_as_arrays_and_ragged_ones_are_told() -> None:
    whole = Episode({"state": [[1.0], [2.0]]}, [[0.5]], [1.0], False, True)  # type: ignore[dict-item, arg-type]
    assert surveyed([whole]).columns["action"].maximum.tolist() == [0.5]
    ragged = Episode({"state": [[1.0], [2.0, 3.0]]}, [[0.5]], [1.0], False, True)  # type: ignore[dict-item, arg-type]
    assert surveyed([whole, ragged]).faults[0].kind == "not-numeric"


def test_a_file_that_breaks_off_tells_what_came_before() -> None:
    def play() -> Any:
        yield from random_episodes(2)
        raise DataError("dataset 'x'", "is cut short")

    facts = survey(Recording("x", 60, play))
    assert facts.episodes == 2
    assert (facts.faults[0].kind, facts.faults[0].episode) == ("unreadable", 2)

    def broken() -> Any:
        yield from (play() for _ in ())
        raise DataError("dataset 'x'", "is cut short")

    with pytest.raises(DataError, match="cut short"):
        survey(Recording("x", 60, broken))


def test_nothing_at_all() -> None:
    facts = surveyed([])
    assert (facts.episodes, facts.steps, facts.columns) == (0, 0, {})
    assert facts.to_json()["steps"] == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 100))
def test_blocks_change_nothing(seed: int, lengths: list[int], rows: int) -> None:
    episodes = mixed_episodes(seed, [*lengths, lengths[0]])
    episodes[-1] = episodes[0]
    if seed % 3 == 0:
        episodes[len(episodes) // 2].rewards[-1] = np.nan
    whole = survey(recorded(episodes), BOX, block_rows=1 << 20)
    parts = survey(recorded(episodes), BOX, block_rows=rows)
    told, again = whole.to_json(), parts.to_json()
    for name, column in told.pop("columns").items():
        other = again["columns"][name]
        for key in ("mean", "std"):
            here, there = (np.array(facts.pop(key), float) for facts in (column, other))
            np.testing.assert_allclose(here, there, atol=1e-7, equal_nan=True)
        assert column == other
    again.pop("columns")
    assert told == again
    for name, values in whole.sample.items():
        np.testing.assert_array_equal(values, parts.sample[name])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_a_sample_depends_on_the_rows_alone(cuts: list[int]) -> None:
    values = np.arange(sum(cuts))
    whole, parts = RowSample(100), RowSample(100)
    whole.add({"value": values})
    for part in np.split(values, np.cumsum(cuts)[:-1]):
        parts.add({"value": part})
    chosen = parts.columns()["value"]
    np.testing.assert_array_equal(chosen, whole.columns()["value"])
    assert len(chosen) == len(values) if len(values) <= 100 else 20 < len(chosen) <= 100
