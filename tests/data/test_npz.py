"""Flat npz files: boundaries are restored, traps are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.npz import read_npz
from worlds import real_data

BOX = Box((-2.0,), (2.0,))
ROWS = 10
ENDS = np.isin(np.arange(ROWS), [3, 9])


def arrays(**changes: Any) -> dict[str, Any]:
    """Two episodes, of 4 and 6 steps; states count up so that each successor is its state plus 1."""
    states = np.array([0, 1, 2, 3, 10, 11, 12, 13, 14, 15], np.float32)[:, None]
    plain = {
        "observations": states,
        "actions": np.linspace(-1, 1, ROWS, dtype=np.float32)[:, None],
        "rewards": np.arange(ROWS, dtype=np.float32),
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def load(folder: Path, **changes: Any) -> Dataset:
    np.savez(folder / "x.npz", **arrays(**changes))
    return read_npz(folder / "x.npz", BOX)


def complaint(folder: Path, **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, **changes)
    assert "x.npz" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["timeouts", "truncations", "truncated"])
def test_timeouts_end_episodes_without_ending_the_world(tmp_path: Path, name: str) -> None:
    dataset = load(tmp_path, **{name: ENDS})
    assert dataset.index.lengths.tolist() == [4, 6]
    assert dataset.index.truncated.tolist() == [True, True]
    assert dataset.index.terminated.tolist() == [False, False]
    batch = dataset.rows(torch.arange(ROWS), Demand(("td_valid",)))
    assert batch.extra["td_valid"].tolist() == (~ENDS).tolist()  # the final observations were cut off


@pytest.mark.parametrize("name", ["terminals", "terminations", "terminated"])
@pytest.mark.parametrize("kind", [bool, np.uint8, np.float64])
def test_terminals_end_the_world(tmp_path: Path, name: str, kind: type) -> None:
    dataset = load(tmp_path, **{name: ENDS.astype(kind)})
    batch = dataset.rows(torch.arange(ROWS), Demand(("td_valid",)))
    assert batch.terminated.tolist() == ENDS.tolist()
    assert batch.extra["td_valid"].all()


def test_flags_may_be_columns(tmp_path: Path) -> None:
    column = ENDS[:, None]
    dataset = load(tmp_path, terminals=column, rewards=np.ones((ROWS, 1)), actions=np.zeros(ROWS))
    assert dataset.index.lengths.tolist() == [4, 6]
    assert dataset.returns().tolist() == [4.0, 6.0]


def test_successors_give_back_the_final_observation(tmp_path: Path) -> None:
    states = arrays()["observations"]
    dataset = load(tmp_path, timeouts=ENDS, next_observations=states + 1)
    batch = dataset.rows(torch.arange(ROWS), Demand(("td_valid",)))
    assert torch.equal(batch.next_obs["state"], batch.obs["state"] + 1)
    assert batch.extra["td_valid"].all()


def test_episode_ids_are_boundaries(tmp_path: Path) -> None:
    ids = np.array([5] * 4 + [2] * 6)
    dataset = load(tmp_path, episode_id=ids)
    assert dataset.index.lengths.tolist() == [4, 6]
    assert not dataset.index.terminated.any()
    assert not dataset.index.truncated.any()
    assert load(tmp_path, episode_id=ids, terminals=ENDS).index.terminated.all()


def test_a_step_that_ends_the_world_is_not_also_a_time_limit(tmp_path: Path) -> None:
    dataset = load(tmp_path, terminals=ENDS, timeouts=ENDS)
    assert dataset.index.terminated.all()
    assert not dataset.index.truncated.any()


def test_an_unfinished_last_episode_is_kept(tmp_path: Path) -> None:
    dataset = load(tmp_path, terminals=np.arange(ROWS) == 3)
    assert dataset.index.terminated.tolist() == [True, False]
    assert dataset.index.truncated.tolist() == [False, False]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "has no episode boundary: no terminal, no timeout, no episode_id. Add `timeouts`"),
        ({"terminals": np.zeros(ROWS)}, "has no episode boundary"),
        ({"terminals": np.where(ENDS, 7, 0)}, "terminals, row 3: not a flag: got 7, expected 0 or 1"),
        ({"timeouts": np.where(ENDS, np.nan, 0)}, "timeouts, row 3: not a flag: got nan"),
        ({"terminals": ENDS, "episode_id": np.zeros(ROWS, int)}, "row 3: ends an episode, but the next row has"),
        ({"terminals": ENDS[:-1]}, "array 'terminals' has the wrong shape: got (9,), expected (10,)"),
        ({"terminals": ENDS, "actions": np.zeros((9, 1))}, "array 'actions' has the wrong shape"),
        ({"terminals": ENDS, "rewards": np.zeros((ROWS, 2))}, "array 'rewards' has the wrong shape"),
        ({"terminals": ENDS, "next_observations": np.zeros((ROWS, 2))}, "array 'next_observations' has the wrong"),
        ({"terminals": ENDS, "actions": np.zeros((ROWS, 2))}, "actions have the wrong size: got 2, expected 1"),
        ({"terminals": ENDS, "actions": None}, "has no array 'actions'"),
        ({"terminals": ENDS, "rewards": None, "reward": np.zeros(ROWS)}, "Did you mean 'reward'?"),
        ({"terminals": ENDS, "rewards": np.float32(1)}, "a single number where rows belong"),
        ({"terminals": ENDS, "rewards": np.array(["a"] * ROWS)}, "rewards: not numeric: got <U1"),
        ({"terminals": ENDS, "actions": np.array([["a"]] * ROWS)}, "actions: not numeric"),
        ({"episode_id": np.array(["a"] * ROWS)}, "episode_id: not numeric"),
        ({"observations": np.zeros((0, 1)), "actions": np.zeros((0, 1)), "rewards": np.zeros(0)}, "has no rows"),
    ],
)
def test_each_mistake_has_its_sentence(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    assert told in complaint(tmp_path, **changes)


def test_a_broken_chain_is_refused(tmp_path: Path) -> None:
    """A missed boundary would join two episodes."""
    states = arrays()["observations"]
    told = complaint(tmp_path, timeouts=np.arange(ROWS) == 9, next_observations=states + 1)
    assert "next_observations of row 3 is not the observation of row 4. Mark episode ends" in told
    jump = np.where(np.arange(ROWS)[:, None] == 7, 99, states + 1)
    assert "next_observations of row 7 is not" in complaint(tmp_path, timeouts=ENDS, next_observations=jump)


def test_rounding_does_not_break_the_chain(tmp_path: Path) -> None:
    states = arrays()["observations"].astype(np.float64) * 100 / 3
    rounded = (states + 100 / 3).astype(np.float32)
    assert load(tmp_path, timeouts=ENDS, observations=states, next_observations=rounded).episodes == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("observations", "episode 1, observation 'state', row 2, column 0: not finite"),
        ("next_observations", "next_observations, row 6, column 0: not finite"),
        ("actions", "actions, row 6, column 0: not finite"),
        ("rewards", "episode 1, rewards, row 2: not finite"),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_placed(tmp_path: Path, name: str, told: str, value: float) -> None:
    plain = arrays(timeouts=ENDS, next_observations=arrays()["observations"] + 1)
    plain[name] = plain[name].copy()
    plain[name][6] = value
    assert told in complaint(tmp_path, **plain)


def test_clipping_is_a_choice(tmp_path: Path) -> None:
    wild = np.linspace(-4, 4, ROWS)[:, None]
    outside = int((np.abs(wild) > 2).sum())
    assert f"{outside} of 10 actions lie outside" in complaint(tmp_path, terminals=ENDS, actions=wild)
    clipped = read_npz(tmp_path / "x.npz", BOX, clip_actions=True)
    np.testing.assert_array_equal(clipped.actions, np.clip(wild, -2, 2).astype(np.float32))


def test_float64_becomes_float32(tmp_path: Path) -> None:
    doubled = {name: np.asarray(value, np.float64) for name, value in arrays().items()}
    assert load(tmp_path, terminals=ENDS, **doubled).fingerprint == load(tmp_path, terminals=ENDS).fingerprint


def test_a_real_replay_is_read_as_it_was_played() -> None:
    dataset = read_npz(real_data("pendulum_replay.npz"), BOX)
    assert dataset.episodes == 500
    assert set(dataset.index.lengths.tolist()) == {199}
    assert dataset.index.truncated.all()
    assert not dataset.index.terminated.any()
    assert dataset.returns().mean() == pytest.approx(-180.48, abs=0.005)
    batch = dataset.rows(torch.tensor([198, 99_499]), Demand(("td_valid",)))
    assert not batch.terminated.any()
    assert batch.extra["td_valid"].all()


def test_a_real_medium_set_loads() -> None:
    dataset = read_npz(real_data("pendulum_medium.npz"), BOX)
    assert (dataset.episodes, dataset.steps) == (50, 10_000)
    assert dataset.returns().mean() == pytest.approx(-524.3, abs=0.05)
    assert dataset.actions.abs().max() <= 1.0


def test_real_actions_out_of_range_need_a_choice() -> None:
    path = real_data("pendulum_out_of_range.npz")
    with pytest.raises(DataError, match=r"\d+ of 6000 actions lie outside the action space: got up to 899\d"):
        read_npz(path, BOX)
    clipped = read_npz(path, BOX, clip_actions=True)
    assert clipped.actions.abs().max() == 2.0
    assert clipped.episodes == 30
