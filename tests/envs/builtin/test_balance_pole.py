"""The scripted cart-pole player: better with more skill."""

import numpy as np

from understudy import Recipe, make_dataset
from understudy.envs.builtin.controllers import balance_pole


def mean_return(skill: float) -> float:
    recipe = {"env": "CartPole-v1", "episodes": 6, "seed": 7, "behaviours": [{"policy": "scripted", "skill": skill}]}
    return float(make_dataset(Recipe.parse(recipe)).returns().mean())


def test_skill_pays() -> None:
    helpless, middling, best = (mean_return(skill) for skill in (0.0, 0.5, 1.0))
    assert helpless < 15 < middling < 100 < best
    assert best == 500


def test_it_pushes_to_the_side_the_pole_leans_and_falls_to() -> None:
    def push(*state: float, skill: float = 1.0) -> float:
        return float(balance_pole({"state": np.array(state, np.float32)}, skill))

    assert push(0, 0, 0.1, 0) == 1
    assert push(0, 0, -0.1, 0) == 0
    assert push(0, 0, 0.1, -1.0) == 0
    assert push(0, 0, 0.1, -1.0, skill=0.5) == 1
    assert push(1.0, 0, 0, 0) == 1
