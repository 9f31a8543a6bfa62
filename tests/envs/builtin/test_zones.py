"""The world of zones: what a thrust does in each kind, what is told of it, and what counts."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.envs.builtin.zones import Zones
from understudy.envs.facts import can_terminate
from understudy.envs.gym import make_env

ENDINGS = ("", "Ground", "Mirror", "Left", "Right")


def world(kind: Any = None, **settings: Any) -> Zones:
    made = Zones(kind, **settings)
    made.reset(seed=3)
    return made


def put(made: Zones, x: float, kinds: list[int]) -> None:
    """At rest on the path, with a wished speed of 1."""
    made.recall({"body": np.array([x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), "kinds": np.array(kinds)})


def after(made: Zones, action: list[float]) -> tuple[NDArray[np.float32], float]:
    seen, reward, *_ = made.step(np.array(action))
    return seen["state"], reward


def test_each_kind_turns_the_thrust_its_own_way_and_says_so() -> None:
    """One step from rest: v = 0.1·2·R·a."""
    for kind, (forward, across), marks in (
        (0, (0.2, 0.0), [0, 0, 0]),
        (1, (-0.2, 0.0), [1, 0, 0]),
        (2, (0.0, 0.2), [0, 1, 1]),
        (3, (0.0, -0.2), [0, 1, -1]),
    ):
        made = world()
        put(made, 0.75, [kind] * 12)
        state, _ = after(made, [1.0, 0.0])
        assert state[:2] == pytest.approx([forward, across], abs=1e-6)
        assert state[6:].tolist() == marks
        assert state[3:6].tolist() == [1.0, 1.0, 0.0], "the command, and the action as it was sent"


def test_drag_limits_and_the_reward() -> None:
    made = world("ground", thrust=1.0)
    put(made, 0.0, [0] * 12)
    state, reward = after(made, [5.0, 0.0])
    assert state[0] == pytest.approx(0.1), "thrust 1, and no more than the box allows"
    assert reward == pytest.approx(math.exp(-2.0 * 0.9**2))
    state, _ = after(made, [0.0, 0.0])
    assert state[0] == pytest.approx(0.1 * (1 - 0.08))
    among, alone = world(), world("left")
    for made, speed in ((among, 0.5), (alone, 1.0)):
        put(made, 0.75, [2] * 12)
        assert after(made, [0.0, 0.0])[1] == pytest.approx(math.exp(-2.0 * speed**2)), "a limit among other zones"


def test_zones_follow_each_other_and_come_again() -> None:
    made = world()
    kinds = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    for x, kind in ((0.1, 0), (1.6, 1), (3.1, 2), (4.6, 3), (18.1, 0), (-0.1, 3)):
        put(made, x, kinds)
        assert after(made, [0.0, 0.0])[0][6:].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, -1]][kind], x


def test_registered_worlds() -> None:
    for ending in ENDINGS:
        name = f"UnderstudyZones{ending}-v0"
        env = make_env(name)
        assert can_terminate(name) is False
        seen: Any = env.reset(seed=1)[0]
        kinds = {tuple(env.unwrapped.tell()["kinds"]) for _ in range(3) if env.reset()}  # type: ignore[attr-defined]
        assert (len(kinds) == 3) == (ending == "")
        assert (0.8 if not ending else 0.3) <= seen["state"][3] <= 1.2
    shown = world(render_mode="rgb_array").render()
    assert shown.shape == (160, 480, 3)
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) > 5
