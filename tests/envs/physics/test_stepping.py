"""Replaying one step: from an observation alone, every environment repeats what it did."""

from pathlib import Path

import numpy as np
import pytest
from recordings import record

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box, Discrete
from understudy.envs.physics.poses import POSES
from understudy.envs.physics.stepping import Stepper, find_stepper, replayable

CLASSIC = ["Pendulum-v1", "CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
MUJOCO = sorted(set(POSES) - set(CLASSIC))


def stepper(env_id: str) -> Stepper:
    found = find_stepper(env_id)
    assert found is not None
    return found


@pytest.mark.parametrize("env_id", CLASSIC)
def test_classic_control_repeats_to_single_precision(env_id: str) -> None:
    steps = record(env_id)
    played = stepper(env_id).step_from(steps.observations, steps.actions)
    assert played.replayed.all()
    np.testing.assert_allclose(played.next_observations, steps.next_observations, atol=3e-6)
    np.testing.assert_allclose(played.rewards, np.asarray(steps.rewards), atol=3e-6)
    np.testing.assert_array_equal(played.terminated, np.asarray(steps.terminated))


@pytest.mark.parametrize("env_id", MUJOCO)
def test_mujoco_repeats_to_double_precision(env_id: str) -> None:
    steps = record(env_id, count=40)
    worker = stepper(env_id)
    played = worker.step_from(steps.observations, steps.actions)
    solved = 1e-4 if "Humanoid" in env_id else 1e-11  # the humanoid's contact solver stops before it converges
    seen = played.replayed
    assert seen.sum() >= 8
    predicted, stored = (part[seen, : worker.columns] for part in (played.next_observations, steps.next_observations))
    np.testing.assert_allclose(predicted, stored, atol=solved, rtol=solved)
    np.testing.assert_array_equal(played.terminated[seen], np.asarray(steps.terminated)[seen])
    if env_id.startswith(("Ant-", "Humanoid-")) or env_id == "Reacher-v4":
        assert np.isnan(played.rewards).all()
    else:
        np.testing.assert_allclose(played.rewards[seen], np.asarray(steps.rewards)[seen], atol=solved)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "InvertedPendulum-v4", "CartPole-v1"])
def test_ends_are_predicted(env_id: str) -> None:
    steps = record(env_id, count=150)
    assert np.asarray(steps.terminated).sum() >= 2
    played = stepper(env_id).step_from(steps.observations, steps.actions)
    np.testing.assert_array_equal(played.terminated, np.asarray(steps.terminated))


@pytest.mark.parametrize("env_id", ["Hopper-v4", "Walker2d-v5", "InvertedDoublePendulum-v5"])
def test_cut_off_velocities_are_not_replayed(env_id: str) -> None:
    worker = stepper(env_id)
    steps = record(env_id, count=3)
    observations = np.repeat(steps.observations[:1], 3, axis=0)
    observations[1, worker.columns - 1] = -10.0
    played = worker.step_from(observations, steps.actions)
    np.testing.assert_array_equal(played.replayed, [True, False, True])
    assert np.isnan(played.next_observations[1]).all()
    assert np.isnan(played.rewards[1])


def test_rows_do_not_know_each_other() -> None:
    steps = record("HalfCheetah-v5", count=30)
    worker = stepper("HalfCheetah-v5")
    forth = worker.step_from(steps.observations, steps.actions)
    back = worker.step_from(steps.observations[::-1], steps.actions[::-1])
    np.testing.assert_array_equal(forth.next_observations, back.next_observations[::-1])


@pytest.mark.parametrize("env_id", [*CLASSIC, "HalfCheetah-v5", "Hopper-v5", "Ant-v5"])
def test_what_cannot_be_a_state_is_passed_over(env_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Huge values hang Acrobot, raise in MountainCar and make MuJoCo write a log file where one happens to stand."""
    monkeypatch.chdir(tmp_path)
    worker = stepper(env_id)
    steps = record(env_id, count=6)
    observations = np.asarray(steps.observations, dtype=np.float64).copy()
    observations[0] = np.nan
    observations[1] = 1e300
    observations[2] = np.inf
    observations[3, : worker.columns] *= 1e5
    played = worker.step_from(observations, steps.actions)
    assert not played.replayed[:3].any()
    assert played.replayed[4:].all()
    assert not list(tmp_path.iterdir())


def test_impossible_actions_are_passed_over() -> None:
    continuous, discrete = stepper("Pendulum-v1"), stepper("CartPole-v1")
    states = np.array([[1.0, 0.0, 0.0]] * 3)
    np.testing.assert_array_equal(
        continuous.step_from(states, np.array([[np.nan], [np.inf], [8995.0]])).replayed, [False, False, True]
    )
    np.testing.assert_array_equal(
        discrete.step_from(np.zeros((4, 4)), np.array([0, 1, 2, -1])).replayed, [True, True, False, False]
    )


def test_actions_are_given_as_they_are() -> None:
    """MuJoCo limits the motors by itself, but the cost is that of the action one asked for."""
    worker = stepper("HalfCheetah-v5")
    state, far = np.zeros((1, 17)), np.full((1, 6), 3.0)
    asked, kept = worker.step_from(state, far), worker.step_from(state, np.ones((1, 6)))
    np.testing.assert_array_equal(asked.next_observations, kept.next_observations)
    assert kept.rewards[0] - asked.rewards[0] == pytest.approx(0.1 * 6 * (9 - 1), rel=1e-6)


def test_columns_after_the_state_are_ignored() -> None:
    steps = record("Hopper-v5", count=5)
    timed = np.hstack([steps.observations, np.arange(5.0)[:, None]])
    played = stepper("Hopper-v5").step_from(timed, steps.actions)
    np.testing.assert_allclose(played.next_observations[:, :11], steps.next_observations, atol=1e-12)
    assert np.isnan(played.next_observations[:, 11]).all()


def test_action_spaces() -> None:
    assert stepper("Pendulum-v1").action_space == Box((-2.0,), (2.0,))
    assert stepper("CartPole-v1").action_space == Discrete(2)


@pytest.mark.parametrize("env_id", ["Blackjack-v1", "Hopper-v2", "Hopper-v3", "Pusher-v5"])
def test_environments_that_cannot_be_put_into_a_state(env_id: str) -> None:
    assert find_stepper(env_id) is None


def test_other_versions_are_named() -> None:
    assert replayable("Hopper-v2") == ["Hopper-v4", "Hopper-v5"]
    assert replayable("Blackjack-v1") == []


def test_unknown_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'Hopper-v"):
        find_stepper("Hoper-v5")


def test_wrong_shapes_are_refused() -> None:
    worker = stepper("Pendulum-v1")
    with pytest.raises(DataError, match=r"not its observations: got \(4, 2\), expected \[N, 3\]"):
        worker.step_from(np.zeros((4, 2)), np.zeros((4, 1)))
    with pytest.raises(DataError, match=r"not its actions: got \(4, 2\), expected \[4, 1\]"):
        worker.step_from(np.zeros((4, 3)), np.zeros((4, 2)))
