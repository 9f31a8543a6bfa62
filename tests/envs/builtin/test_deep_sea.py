"""Deep sea: the only way to the treasure, what every step costs, and what is seen of it."""

import itertools

import numpy as np

from understudy.envs.builtin.deep_sea import COST, DeepSea
from understudy.envs.facts import can_terminate, time_limit
from understudy.envs.gym import make_env


def test_of_all_ways_one_has_the_treasure() -> None:
    env, depth = DeepSea(depth=5), 5
    returns = {}
    for way in itertools.product((0, 1), repeat=depth):
        state, _ = env.reset()
        total, row, column = 0.0, 0, 0
        for number, action in enumerate(way):
            assert np.flatnonzero(state).tolist() == [row * depth + column]
            state, reward, terminated, truncated, _ = env.step(np.int64(action))
            total, row = total + reward, row + 1
            column = min(column + 1, depth - 1) if action else max(column - 1, 0)
            assert (terminated, truncated) == (number == depth - 1, False)
        assert not state.any(), "nothing is seen after the end"
        returns[way] = total
    for way, total in returns.items():
        assert abs(total - ((sum(way) == depth) - COST * sum(way) / depth)) < 1e-9


def test_the_registered_one() -> None:
    env = make_env("UnderstudyDeepSea-v0")
    assert env.observation_space.shape == (144,)
    assert time_limit("UnderstudyDeepSea-v0") == 12
    assert can_terminate("UnderstudyDeepSea-v0") is True
    frames = []
    drawn = DeepSea(render_mode="rgb_array")
    drawn.reset()
    for _ in range(12):
        frames.append(drawn.render())
        drawn.step(np.int64(1))
    assert all((one != other).any() for one, other in itertools.pairwise(frames)), "the diver is seen to move"
