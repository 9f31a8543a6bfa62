"""Physics of stored steps: what the data say of themselves, and what they mean when they do not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recordings import record, recording

from understudy.core.errors import DataError
from understudy.envs.physics.agreement import Physics, Steps, compare_physics, following, sample_rows
from understudy.envs.physics.stepping import find_stepper


def physics(env_id: str, steps: Steps) -> Physics:
    stepper = find_stepper(env_id)
    assert stepper is not None
    result = compare_physics(stepper, steps)
    assert result is not None
    return result


def floats(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(values, dtype=np.float64)


# Real files.


def test_pendulum_replay_is_what_it_says() -> None:
    result = physics("Pendulum-v1", recording("pendulum_replay", "terminations"))
    assert (result.actions, result.grade, result.rewards) == ("recorded", "exact", "recorded")
    assert result.best.observation.median < 4e-7
    assert result.readings["unit"].observation.median > 0.05


@pytest.mark.parametrize("name", ["pendulum_medium", "pendulum_expert"])
def test_half_of_the_action_scale_is_found(name: str) -> None:
    result = physics("Pendulum-v1", recording(name))
    assert (result.actions, result.grade, result.rewards) == ("unit", "exact", "recorded")
    assert result.readings["recorded"].observation.median == pytest.approx(0.08, abs=0.005)
    assert result.best.observation.most < 5e-7
    assert not result.breaks


def test_normalised_observations_match_in_no_reading() -> None:
    result = physics("Pendulum-v1", recording("pendulum_out_of_range"))
    assert (result.grade, result.rewards) == ("different", "unknown")
    assert set(result.readings) == {"recorded", "unit", "clipped"}
    assert all(reading.observation.median > 0.4 for reading in result.readings.values())


@pytest.mark.parametrize("env_id", ["HalfCheetah-v4", "HalfCheetah-v5"])
def test_cheetah_repeats_to_the_last_digits(env_id: str) -> None:
    result = physics(env_id, recording("halfcheetah_cs285", "source_terminal"))
    assert (result.actions, result.grade, result.rewards) == ("recorded", "exact", "recorded")
    assert result.best.observation.median < 1e-13
    assert result.best.observation.worst < 1e-9
    assert result.best.reward is not None
    assert result.best.reward.worst < 1e-7
    clipped = result.readings["clipped"]
    assert clipped.observation == result.best.observation
    assert clipped.reward is not None
    assert clipped.reward.median > 0.01
    assert result.terminals is not None
    assert (result.terminals.confirmed, result.terminals.denied) == (0, 2)


@pytest.mark.parametrize("env_id", ["Hopper-v4", "Hopper-v5"])
def test_hopper_repeats_where_no_velocity_is_cut_off(env_id: str) -> None:
    result = physics(env_id, recording("hopper_cs285", "source_terminal"))
    assert (result.actions, result.grade, result.rewards) == ("recorded", "exact", "recorded")
    assert result.best.observation.worst < 1e-12
    assert 0.7 * result.rows < result.replayed < 0.9 * result.rows
    assert result.terminals is not None
    assert result.terminals.denied == 2


def test_an_older_simulator_is_close_and_its_lost_last_observations_are_found() -> None:
    result = physics("Hopper-v5", recording("hopper_opolo_3500", "episode_end"))
    assert (result.actions, result.grade, result.rewards) == ("recorded", "close", "recorded")
    assert 0.005 < result.best.observation.median < 0.015
    assert result.best.observation.median < 0.01 * result.step
    assert len(result.columns) == 11
    assert len(result.breaks) == 10
    ends = np.flatnonzero(np.asarray(recording("hopper_opolo_3500", "episode_end").terminated))
    np.testing.assert_array_equal(result.breaks, ends)


@pytest.mark.parametrize("env_id", ["CartPole-v0", "CartPole-v1"])
def test_cart_pole_tells_falls_from_time_limits(env_id: str) -> None:
    result = physics(env_id, recording("cartpole_rllib", "dones"))
    assert (result.actions, result.grade, result.rewards) == ("recorded", "exact", "recorded")
    assert result.terminals is not None
    assert (result.terminals.confirmed, result.terminals.denied, result.terminals.missed) == (1, 20, 0)


# Steps recorded here.


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "InvertedPendulum-v5", "HumanoidStandup-v5"])
def test_unit_actions_of_any_box(env_id: str) -> None:
    steps = record(env_id, count=50)
    high = {"Pendulum-v1": 2.0, "InvertedPendulum-v5": 3.0, "HumanoidStandup-v5": 0.4}[env_id]
    assert physics(env_id, steps).actions == "recorded"
    result = physics(env_id, replace(steps, actions=steps.actions / np.float32(high)))
    assert (result.actions, result.grade) == ("unit", "exact")


def test_actions_that_were_clipped_before_they_were_played() -> None:
    steps = record("HalfCheetah-v5", count=60)
    wild = np.where(np.abs(steps.actions) > 0.5, steps.actions * 3, steps.actions)
    tame = np.clip(wild, -1, 1)
    stepper = find_stepper("HalfCheetah-v5")
    assert stepper is not None
    played = stepper.step_from(steps.observations, tame)
    result = physics("HalfCheetah-v5", Steps(steps.observations, wild, played.next_observations, played.rewards))
    assert (result.actions, result.grade, result.rewards) == ("clipped", "exact", "recorded")


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5", "Hopper-v5"])
def test_late_rewards_are_found(env_id: str) -> None:
    steps = record(env_id, count=80)
    rewards = floats(steps.rewards)
    late = np.concatenate([[0.0], rewards[:-1]])
    result = physics(env_id, replace(steps, rewards=late, following_rewards=following(late, np.zeros(80))))
    assert (result.grade, result.rewards) == ("exact", "late")
    assert physics(env_id, steps).rewards == "recorded"


def test_constant_rewards_are_never_late() -> None:
    assert physics("CartPole-v1", record("CartPole-v1")).rewards == "recorded"


def test_late_rewards_and_unit_actions_at_once() -> None:
    steps = record("Pendulum-v1", count=80)
    late = np.concatenate([[0.0], floats(steps.rewards)[:-1]])
    changed = replace(steps, actions=steps.actions / 2, rewards=late, following_rewards=following(late, np.zeros(80)))
    result = physics("Pendulum-v1", changed)
    assert (result.actions, result.grade, result.rewards) == ("unit", "exact", "late")


def test_scaled_rewards_are_different() -> None:
    steps = record("HalfCheetah-v5")
    result = physics("HalfCheetah-v5", replace(steps, rewards=floats(steps.rewards) * 0.1, following_rewards=None))
    assert (result.grade, result.rewards) == ("exact", "different")


def test_unknown_rewards() -> None:
    assert physics("Ant-v5", record("Ant-v5")).rewards == "unknown"
    steps = record("Pendulum-v1")
    bare = Steps(steps.observations, steps.actions, steps.next_observations)
    result = physics("Pendulum-v1", bare)
    assert (result.grade, result.rewards, result.terminals) == ("exact", "unknown", None)
    assert result.best.reward is None


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Reacher-v5"])
def test_single_precision_is_still_exact(env_id: str) -> None:
    steps = record(env_id, count=100)
    rounded = replace(
        steps,
        observations=steps.observations.astype(np.float32),
        next_observations=steps.next_observations.astype(np.float32),
    )
    result = physics(env_id, rounded)
    assert result.grade == "exact"
    assert result.best.observation.median > 1e-9


@pytest.mark.parametrize(("env_id", "other"), [("Walker2d-v4", "Walker2d-v5"), ("HalfCheetah-v5", "Walker2d-v5")])
def test_another_model_is_not_exact(env_id: str, other: str) -> None:
    steps = record(env_id, count=100)
    assert physics(env_id, steps).grade == "exact"
    assert physics(other, steps).grade != "exact"


def test_a_fifth_of_foreign_rows_is_not_exact() -> None:
    """The median alone would not see that two sources were joined."""
    steps = record("Pendulum-v1", count=100)
    actions = steps.actions.copy()
    actions[:20] /= 2
    assert physics("Pendulum-v1", replace(steps, actions=actions)).grade != "exact"


def test_lost_boundaries_are_named() -> None:
    steps = record("HalfCheetah-v5", count=60)
    broken = steps.next_observations.copy()
    broken[[7, 31]] = steps.observations[0]
    result = physics("HalfCheetah-v5", replace(steps, next_observations=broken))
    assert (result.grade, result.breaks) == ("exact", (7, 31))
    assert physics("HalfCheetah-v5", steps).breaks == ()


def test_terminals_against_the_environment() -> None:
    steps = record("Hopper-v5", count=150)
    true = np.asarray(steps.terminated)
    ends = np.flatnonzero(true)
    stored = true.copy()
    stored[ends[0]] = False
    stored[ends[0] + 3] = True
    terminals = physics("Hopper-v5", replace(steps, terminated=stored)).terminals
    assert terminals is not None
    assert (terminals.confirmed, terminals.denied, terminals.missed) == (len(ends) - 1, 1, 1)


def test_a_wrong_column_is_pointed_at() -> None:
    steps = record("Pendulum-v1")
    wrong = steps.next_observations.copy()
    wrong[:, 2] += 0.5
    columns = physics("Pendulum-v1", replace(steps, next_observations=wrong)).columns
    assert columns[2] == pytest.approx(0.5, abs=1e-5)
    assert max(columns[:2]) < 1e-6


def test_no_range_of_actions_is_fitted_to_motion_that_no_action_explains() -> None:
    """A column in degrees: the best range is so small that actions read in it cannot be played."""
    steps = record("Walker2d-v5", count=40)
    before, after = steps.observations.copy(), steps.next_observations.copy()
    before[:, 13], after[:, 13] = np.rad2deg(before[:, 13]), np.rad2deg(after[:, 13])
    result = physics("Walker2d-v5", replace(steps, observations=before, next_observations=after))
    assert (result.grade, result.reach) == ("different", None)


def test_rows_without_a_next_observation_do_not_count() -> None:
    steps = record("Pendulum-v1", count=20)
    missing = steps.next_observations.copy()
    missing[[3, 9]] = np.nan
    result = physics("Pendulum-v1", replace(steps, next_observations=missing))
    assert (result.grade, result.rows, result.replayed) == ("exact", 20, 18)


def test_nothing_to_replay() -> None:
    stepper = find_stepper("Hopper-v5")
    assert stepper is not None
    cut_off = np.full((4, 11), 10.0)
    assert compare_physics(stepper, Steps(cut_off, np.zeros((4, 3)), cut_off)) is None
    assert compare_physics(stepper, Steps(cut_off[:0], np.zeros((0, 3)), cut_off[:0])) is None


def test_columns_must_be_of_one_length() -> None:
    with pytest.raises(DataError, match="different lengths"):
        Steps(np.zeros((4, 3)), np.zeros((3, 1)), np.zeros((4, 3)))
    with pytest.raises(DataError, match="differ in shape"):
        Steps(np.zeros((4, 3)), np.zeros((4, 1)), np.zeros((4, 2)))


def test_following_rewards_stay_in_their_episode() -> None:
    late = following(np.arange(6.0), np.array([0, 0, 0, 1, 1, 2]))
    np.testing.assert_array_equal(late, [1, 2, np.nan, 4, np.nan, np.nan])


def test_samples_are_bounded_repeatable_and_hold_terminals() -> None:
    ends = np.arange(999, 100_000, 1000)
    rows = sample_rows(100_000, ends)
    assert 490 <= len(rows) <= 500
    assert set(ends) <= set(rows.tolist())
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, sample_rows(100_000, ends))
    assert np.isin(sample_rows(100_000, np.arange(100_000)), np.arange(100_000)).all()
    np.testing.assert_array_equal(sample_rows(5, np.array([4])), np.arange(5))
