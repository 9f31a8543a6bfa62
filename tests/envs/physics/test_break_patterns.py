"""Why a step does not follow: one row made wrong in a known way, seen with its neighbours."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recordings import record

from understudy.envs.physics.agreement import Steps
from understudy.envs.physics.break_patterns import REACH, Diagnosis, Window, diagnose_breaks, fitted_actions
from understudy.envs.physics.stepping import Stepper, find_stepper

AT, LIMIT = 20, 1e-3
ENVIRONMENTS = ("Pendulum-v1", "HalfCheetah-v5")


def stepper_of(env_id: str) -> Stepper:
    stepper = find_stepper(env_id)
    assert stepper is not None
    return stepper


def episode(env_id: str) -> tuple[Any, Any]:
    """[41, S] observations and [40, A] actions."""
    steps = record(env_id, count=40)
    return np.concatenate([steps.observations, steps.next_observations[-1:]]), np.array(steps.actions)


def window(observations: Any, actions: Any, at: int = AT, *, last: bool = False) -> Window:
    low, high = max(0, at - REACH), min(len(actions), at + REACH + 1)
    far = [0, 3, 6, 9]
    others = observations[far], actions[far], observations[[1, 4, 7, 10]]
    return Window(observations[low : high + 1], actions[low:high], at - low, last, others)


def diagnosed(env_id: str, broken: Window) -> Diagnosis:
    return diagnose_breaks(stepper_of(env_id), [broken], lambda actions: actions, LIMIT)[0]


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_actions(env_id: str) -> None:
    observations, actions = episode(env_id)
    wrong = actions.copy()
    wrong[AT] = -wrong[AT]
    assert diagnosed(env_id, window(observations, wrong)).cause == "negated action"
    wrong[AT] = 0.5 * actions[AT] - 0.1
    assert diagnosed(env_id, window(observations, wrong)).cause == "other action"
    assert diagnosed(env_id, window(observations, np.roll(actions, 1, axis=0))).cause == "late action"
    assert diagnosed(env_id, window(observations, np.roll(actions, -1, axis=0))).cause == "early action"


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_observations(env_id: str) -> None:
    observations, actions = episode(env_id)
    wrong = observations.copy()
    wrong[AT] = wrong[AT - 1]
    assert diagnosed(env_id, window(wrong, actions)).cause == "repeated observation"
    wrong = observations.copy()
    wrong[[AT, AT + 1]] = wrong[[AT + 1, AT]]
    assert diagnosed(env_id, window(wrong, actions)).cause == "swapped observations"
    wrong = observations.copy()
    wrong[AT, 1] += 0.3
    assert diagnosed(env_id, window(wrong, actions)) == Diagnosis("observation", (1,))
    wrong = observations.copy()
    wrong[:, 2] = np.rad2deg(wrong[:, 2])
    assert diagnosed(env_id, window(wrong, actions)) == Diagnosis("degrees", (2,))


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_places(env_id: str) -> None:
    """What no action explains is a boundary within, a wrong final at the end, another world if nothing follows."""
    observations, actions = episode(env_id)
    joined, deeds = np.concatenate([observations[:AT], observations[:20]]), np.concatenate([actions[:AT], actions[:19]])
    assert diagnosed(env_id, window(joined, deeds, AT - 1)).cause == "boundary"
    wrong = observations[: AT + 2].copy()
    wrong[-1] = observations[0] + 0.5
    assert diagnosed(env_id, window(wrong, actions[: AT + 1], last=True)).cause == "final"
    foreign = np.random.default_rng(0).normal(0, 1, observations.shape)
    assert diagnosed(env_id, window(foreign, actions)).cause == "episode"


def test_choices() -> None:
    """One of two actions is the neighbour's half of the time: a single one says nothing of lateness."""
    observations, actions = episode("CartPole-v1")
    wrong = actions.copy()
    wrong[AT] = 1 - wrong[AT]
    assert diagnosed("CartPole-v1", window(observations, wrong)).cause == "other action"


def test_what_rounding_may_explain_is_no_fault() -> None:
    """A world that jumps at 0: a step from there says nothing."""

    class Cliff:
        env_id, columns, action_space = "Cliff", 1, stepper_of("Pendulum-v1").action_space

        def __init__(self) -> None:
            self.inner = stepper_of("Pendulum-v1")

        def holds_state(self, observations: Any) -> Any:
            return np.ones(len(observations), bool)

        def is_over(self, observations: Any) -> Any:
            return None

        def step_from(self, observations: Any, actions: Any) -> Any:
            rows = self.inner.step_from(np.zeros((len(observations), 3)), actions)
            return replace(
                rows, next_observations=np.where(observations > 0, 1.0, -1.0), replayed=np.ones(len(observations), bool)
            )

    observations = np.array([[0.5], [1.0], [0.0], [1.0], [1.0]])
    broken = Window(observations, np.zeros((4, 1)), 2, False, (observations[:0], np.zeros((0, 1)), observations[:0]))
    assert diagnose_breaks(Cliff(), [broken], lambda actions: actions, LIMIT)[0].cause == "rounding"
    far = Window(observations - 0.5, np.zeros((4, 1)), 1, False, broken.others)
    assert diagnose_breaks(Cliff(), [far], lambda actions: actions, LIMIT)[0].cause != "rounding"


def test_an_action_is_found_by_where_it_led() -> None:
    steps: Steps = record("HalfCheetah-v5", count=30)
    stepper = stepper_of("HalfCheetah-v5")
    guesses = np.zeros_like(steps.actions)
    assert np.median(fitted_actions(stepper, steps.observations, guesses, steps.next_observations)) < 1e-6
    elsewhere = steps.next_observations + 0.5
    assert fitted_actions(stepper, steps.observations, guesses, elsewhere).min() > 0.01
