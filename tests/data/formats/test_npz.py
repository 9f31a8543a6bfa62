"""Npz files: layouts are told apart, boundaries restored, traps refused."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.data.dataset import Dataset
from understudy.data.formats.npz import open_npz
from understudy.data.recording import Recording
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
    return dataset_of(folder / "x.npz")


def dataset_of(path: Path, space: ActionSpace = BOX) -> Dataset:
    return Dataset.from_episodes(open_npz(path).episodes(), space, name=path.name)


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
        ({"terminals": ENDS, "actions": None, "aktions": np.zeros(ROWS)}, "Did you mean 'aktions'?"),
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
        ("actions", "episode 1, actions, row 2, column 0: not finite"),
        ("rewards", "episode 1, rewards, row 2: not finite"),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_placed(tmp_path: Path, name: str, told: str, value: float) -> None:
    plain = arrays(timeouts=ENDS, next_observations=arrays()["observations"] + 1)
    plain[name] = plain[name].copy()
    plain[name][6] = value
    assert told in complaint(tmp_path, **plain)


def test_actions_outside_the_space_are_counted(tmp_path: Path) -> None:
    wild = np.linspace(-4, 4, ROWS)[:, None]
    outside = int((np.abs(wild) > 2).sum())
    assert f"{outside} of 10 actions lie outside" in complaint(tmp_path, terminals=ENDS, actions=wild)


def test_float64_becomes_float32(tmp_path: Path) -> None:
    doubled = {name: np.asarray(value, np.float64) for name, value in arrays().items()}
    assert load(tmp_path, terminals=ENDS, **doubled).fingerprint == load(tmp_path, terminals=ENDS).fingerprint


def saved(folder: Path, **given: Any) -> Recording:
    np.savez(folder / "x.npz", **given)
    return open_npz(folder / "x.npz")


def test_stable_baselines_layout(tmp_path: Path) -> None:
    plain = arrays()
    recording = saved(
        tmp_path,
        obs=plain["observations"],
        actions=np.zeros((ROWS, 1), np.int64),
        rewards=plain["rewards"],
        episode_starts=np.isin(np.arange(ROWS), [0, 4]),
        episode_returns=np.array([6.0, 39.0]),
    )
    assert recording.layout == "sb2"
    dataset = Dataset.from_episodes(recording.episodes(), Discrete(2))
    assert dataset.returns().tolist() == [6.0, 39.0]
    assert not (dataset.index.terminated | dataset.index.truncated | dataset.index.final_known).any()


def trajectories(**changes: Any) -> dict[str, Any]:
    """Two trajectories, of 2 and 3 steps."""
    plain = {
        "obs": np.arange(7.0)[:, None],
        "acts": np.arange(5.0)[:, None],
        "rews": np.arange(5.0),
        "indices": np.array([2]),
        "terminal": np.array([True, False]),
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


@pytest.mark.parametrize("renamed", [{}, {"obs": "observations", "acts": "actions", "rews": "rewards_flat"}])
@pytest.mark.parametrize("cuts", ["indices", "split"])
def test_imitation_layout(tmp_path: Path, renamed: dict[str, str], cuts: str) -> None:
    given = {renamed.get(name, name): value for name, value in trajectories(**{"indices": None}).items()}
    recording = saved(tmp_path, **given, **{cuts: np.array([2])})
    assert (recording.layout, recording.steps) == ("imitation", 5)
    first, second = recording.episodes()
    assert first.observations["state"].ravel().tolist() == [0, 1, 2]
    assert second.observations["state"].ravel().tolist() == [3, 4, 5, 6]
    assert second.actions.ravel().tolist() == second.rewards.tolist() == [2, 3, 4]
    assert (first.terminated, second.terminated, second.truncated, second.final_known) == (True, False, False, True)
    assert "also says of time limits" in recording.notes[0]


def test_imitation_without_rewards_and_with_one_trajectory(tmp_path: Path) -> None:
    single = trajectories(
        obs=np.zeros((6, 1)), indices=np.zeros(0, int), terminal=np.array([False]), rews=None, other=np.zeros(3)
    )
    recording = saved(tmp_path, **single)
    assert recording.facts["rewards"] == "absent"
    assert [len(episode) for episode in recording.episodes()] == [5]
    assert "Not read: other." in recording.notes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"indices": np.array([7])}, "'indices' does not cut 5 actions in rising order"),
        ({"indices": np.array([3, 3])}, "in rising order"),
        ({"indices": np.array([0])}, "in rising order"),
        ({"indices": np.array([-1])}, "in rising order"),
        ({"indices": np.array([2.0])}, "indices: wrong kind of array: got float64"),
        ({"indices": np.array([[2]])}, "indices: wrong kind of array"),
        ({"indices": np.array([1, 2])}, "3 trajectories with 5 actions in all, and 7 observations: expected 8"),
        ({"terminal": np.array([True])}, "terminal: not one flag per trajectory: got (1,), expected (2,)"),
        ({"terminal": np.array([3, 0])}, "terminal, row 0: not a flag"),
        ({"rews": np.zeros(4)}, "array 'rews' has the wrong shape: got (4,), expected (5,)"),
        ({"acts": np.array(["a"] * 5)}, "acts: not numeric"),
        ({"obs": np.zeros((7, 0))}, "obs: wrong shape"),
    ],
)
def test_imitation_mistakes(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError) as caught:
        list(saved(tmp_path, **trajectories(**changes)).episodes())
    assert told in str(caught.value)


def test_a_flat_column_called_indices_is_no_layout(tmp_path: Path) -> None:
    recording = saved(tmp_path, **arrays(timeouts=ENDS, indices=np.arange(ROWS)))
    assert recording.layout == "flat"
    assert "indices" in next(recording.episodes()).extra


def test_members_nobody_needs_are_never_read(tmp_path: Path) -> None:
    """A damaged byte in the middle of an array breaks its checksum, if somebody looks."""
    path = tmp_path / "x.npz"
    for rows, needed in ((ROWS, True), (ROWS + 1, False)):
        np.savez(path, **arrays(timeouts=ENDS, side=np.full((rows, 10_000), 7.5)))
        content = bytearray(path.read_bytes())
        content[content.find(np.full(100, 7.5).tobytes()) + 200_000] ^= 1
        path.write_bytes(content)
        if needed:
            with pytest.raises(DataError, match=r"Bad CRC-32 for file 'side\.npy'"):
                dataset_of(path)
        else:
            assert dataset_of(path).episodes == 2


def test_a_file_that_changes_underneath_is_noticed(tmp_path: Path) -> None:
    plain = arrays(timeouts=ENDS)
    for change in (
        {"observations": plain["observations"].view(np.int32)},  # as many bytes, in the same place
        {"observations": plain["observations"] + 1},
        {"actions": np.concatenate([plain["actions"]] * 2)},
    ):
        recording = saved(tmp_path, **plain)
        np.savez(tmp_path / "x.npz", **{**plain, **change})
        with pytest.raises(DataError, match="not a readable npz file"):
            list(recording.episodes())
    recording = saved(tmp_path, **plain)
    (tmp_path / "x.npz").unlink()
    with pytest.raises(DataError, match="no such file"):
        list(recording.episodes())


REAL: dict[str, tuple[str, ActionSpace | None]] = {
    "pendulum_replay.npz": ("flat+episode_id", BOX),
    "pendulum_expert.npz": ("flat+episode_id", BOX),
    "pendulum_medium.npz": ("flat+episode_id", BOX),
    "pendulum_out_of_range.npz": ("flat+episode_id", None),
    "pendulum_expert_imitation.npz": ("imitation", BOX),
    "cartpole_rllib.npz": ("flat+episode_id", Discrete(2)),
    "cartpole_expert_sb2.npz": ("flat+episode_id", Discrete(2)),
    "ant_opolo_1200.npz": ("flat+episode_id", None),
    "ant_opolo_300.npz": ("flat+episode_id", None),
    "ant_opolo_5400.npz": ("flat+episode_id", None),
    "hopper_opolo_3500.npz": ("flat+episode_id", None),
    "halfcheetah_cs285.npz": ("flat+episode_id", None),
    "hopper_cs285.npz": ("flat+episode_id", None),
    "adroit_door_human.npz": ("flat+episode_id", None),
    "hopper_csc2541.npz": ("states-actions", None),
}
"""Layout, and the action space where the actions lie inside it."""


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read_as_their_manifest_says(name: str) -> None:
    path = real_data(name)
    entry = next(e for e in json.loads(real_data("MANIFEST.json").read_text()) if e["file"] == name)
    recording = open_npz(path)
    layout, space = REAL[name]
    assert recording.layout == layout
    episodes = list(recording.episodes())
    assert sum(map(len, episodes)) == recording.steps == entry["arrays"]["actions"][1][0]
    if entry["returns"] is not None:
        returns = [float(np.sum(episode.rewards, dtype=np.float64)) for episode in episodes]
        assert len(episodes) == entry["returns"]["episodes"]
        assert np.mean(returns) == pytest.approx(entry["returns"]["return_mean"], abs=0.006)
        assert [min(returns), max(returns)] == pytest.approx(
            [entry["returns"]["return_min"], entry["returns"]["return_max"]], abs=0.006
        )
    if space is not None:
        assert Dataset.from_episodes(episodes, space).steps == recording.steps


def test_real_ends_are_of_the_kind_their_files_say() -> None:
    def kinds(name: str) -> tuple[int, int, int]:
        episodes = list(open_npz(real_data(name)).episodes())
        return (
            sum(episode.terminated for episode in episodes),
            sum(episode.truncated for episode in episodes),
            sum(episode.final_known for episode in episodes),
        )

    assert kinds("pendulum_expert.npz") == (0, 50, 50)
    assert kinds("halfcheetah_cs285.npz") == (2, 0, 2)  # time limits, but the file calls them terminal
    assert kinds("cartpole_rllib.npz") == (21, 0, 21)
    assert kinds("cartpole_expert_sb2.npz") == (0, 0, 0)
    assert kinds("pendulum_expert_imitation.npz") == (56, 0, 56)
    assert kinds("hopper_csc2541.npz") == (0, 0, 0)


def test_real_final_observations_overwritten_by_resets_are_unknown() -> None:
    """These files hold, as the successor of an episode's last step, the first observation of the next episode."""
    for name in ("pendulum_replay.npz", "hopper_opolo_3500.npz", "ant_opolo_300.npz", "ant_opolo_5400.npz"):
        recording = open_npz(real_data(name))
        assert not any(episode.final_known for episode in recording.episodes())
        assert any("automatic reset" in note for note in recording.notes)
    dataset = dataset_of(real_data("pendulum_replay.npz"))
    assert dataset.index.truncated.all()
    batch = dataset.rows(torch.tensor([197, 198, 99_499]), Demand(("td_valid",)))
    assert not batch.terminated.any()
    assert batch.extra["td_valid"].tolist() == [True, False, False]


def test_real_actions_out_of_range_need_a_choice() -> None:
    with pytest.raises(DataError, match=r"of 6000 actions lie outside .*, the first in row \d+: got up to 899\d"):
        dataset_of(real_data("pendulum_out_of_range.npz"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("policies/sac_halfcheetah.npz", "holds the weights of a network, not a recording"),
        ("policies/trpo_hopper_snapshots.npz", "holds the weights of a network, not a recording"),
        ("motions/G1_walk.npz", "holds a reference motion, not a recording"),
        ("motions/humanoid_run.npz", "holds a reference motion, not a recording"),
    ],
)
def test_what_is_no_recording_is_told_so(name: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        open_npz(real_data(name))


def test_an_archive_of_something_else_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no recording that we know: got 'x', expected observations and actions"):
        saved(tmp_path, x=np.zeros(3))


# Arrays that are larger than what is kept.


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_array_is_read_by_blocks_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any
) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "x.npz"
    state = rng.standard_normal((1001, 3)).astype(np.float32)
    columns = {
        "observations": state[:-1],
        "next_observations": np.asfortranarray(state[1:]),
        "actions": rng.uniform(-1, 1, (1000, 2)),
        "rewards": rng.standard_normal(1000),
        "terminals": np.zeros(1000, bool),
        "timeouts": np.arange(1000) % 100 == 99,
    }
    save(path, **columns)
    kept = list(open_npz(path).episodes())
    monkeypatch.setattr("understudy.data.formats.npz.KEPT", 0)
    monkeypatch.setattr("understudy.data.formats.flat.BLOCK_BYTES", 4000)
    streamed = open_npz(path)
    for _ in range(2):  # from the beginning every time
        for one, other in zip(kept, streamed.episodes(), strict=True):
            np.testing.assert_array_equal(one.observations["state"], other.observations["state"])
            np.testing.assert_array_equal(one.actions, other.actions)
            np.testing.assert_array_equal(one.rewards, other.rewards)
            assert other.actions.flags.writeable
    for one, other in zip(streamed.episodes(), streamed.episodes(), strict=True):  # two at once
        np.testing.assert_array_equal(one.actions, other.actions)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"actions.npy") + 9000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="not a readable npz file"):
        list(open_npz(path).episodes())


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path, rows = tmp_path / "x.npz", 400_000
    state = np.zeros((rows, 40), np.float32)
    np.savez(path, observations=state, actions=state[:, :1], rewards=state[:, 0], timeouts=np.arange(rows) % 500 == 499)
    del state
    tracemalloc.start()
    try:
        steps = sum(len(episode) for episode in open_npz(path).episodes())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert steps == rows
    assert peak < 55 << 20  # the observations alone are 61 MB


def test_finals_that_hold_no_number_are_unknown(tmp_path: Path) -> None:
    state = np.random.default_rng(0).standard_normal((31, 2))
    after = state[1:].copy()
    after[19] = 7.0  # its own, not the next episode's first
    after[[9, 29]] = np.nan
    ends = np.arange(30) % 10 == 9
    np.savez(tmp_path / "x.npz", observations=state[:-1], next_observations=after, actions=state[:-1], timeouts=ends)
    assert [e.final_known for e in open_npz(tmp_path / "x.npz").episodes()] == [False, True, False]
