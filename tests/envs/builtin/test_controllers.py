"""The scripted pendulum: better with more skill, and only where it exists."""

import numpy as np
import pytest

from understudy.core.errors import ConfigError
from understudy.envs.builtin.controllers import find_controller, swing_up_pendulum
from understudy.run.loading import make_dataset
from worlds import pendulum_recipe


def mean_return(skill: float) -> float:
    behaviours = [{"policy": "scripted", "skill": skill}]
    return float(make_dataset(pendulum_recipe(episodes=6, behaviours=behaviours)).returns().mean())


def test_skill_pays() -> None:
    helpless, middling, best = (mean_return(skill) for skill in (0.0, 0.5, 1.0))
    assert helpless < middling < best
    assert best > -300


def test_it_holds_the_pendulum_at_the_top() -> None:
    upright = {"state": np.array([1.0, 0.0, 0.0], np.float32)}
    assert swing_up_pendulum(upright, 1.0).tolist() == [0.0]
    leaning = {"state": np.array([np.cos(0.1), np.sin(0.1), 0.0], np.float32)}
    assert swing_up_pendulum(leaning, 1.0)[0] < 0


def test_an_environment_without_a_script_is_told() -> None:
    with pytest.raises(ConfigError, match=r"'Pendulum-v0': has no scripted controller. Did you mean 'Pendulum-v1'\?"):
        find_controller("Pendulum-v0")


def test_the_pendulum_needs_to_know_nothing_of_its_world() -> None:
    assert find_controller("Pendulum-v1") is swing_up_pendulum
