"""A point mass of which everything is known: what a force does, laps that can be followed, states it is put into."""

import math
from typing import Any

import numpy as np
import pytest

from understudy.core.errors import ConfigError
from understudy.envs.builtin.circle import SECONDS, Circle, circle_motion, circling_action
from understudy.envs.builtin.controllers import find_controller
from understudy.envs.facts import can_terminate, control_facts
from understudy.envs.gym import make_env


def test_a_force_a_speed_and_what_is_rewarded() -> None:
    world = Circle(speed=1.0)
    world.place({"position": np.array([1.0, 2.0]), "velocity": np.array([0.6, 0.8])})
    seen, reward, *ends, info = world.step(np.array([5.0, 0.0]))
    velocity = np.array([0.6, 0.8]) * (1 - 0.05 * 0.5) + [0.05 * 3.0, 0.0]
    np.testing.assert_allclose(seen["velocity"], velocity, rtol=1e-6)
    np.testing.assert_allclose(seen["position"], np.array([1.0, 2.0]) + 0.05 * velocity, rtol=1e-6)
    assert reward == pytest.approx(math.exp(-4.0 * (np.linalg.norm(velocity) - 1.0) ** 2))
    assert (ends, info) == ([False, False], {})
    assert Circle().step(np.zeros(2))[1] == 0.0


@pytest.mark.parametrize(("radius", "speed", "clockwise"), [(1.0, 1.0, False), (1.5, 0.8, True), (0.5, 0.9, False)])
def test_a_lap_closes_turns_the_right_way_and_can_be_followed(radius: float, speed: float, clockwise: bool) -> None:
    motion = circle_motion(radius, speed, clockwise=clockwise)
    places, velocities = motion["position"], motion["velocity"]
    np.testing.assert_allclose(np.hypot(*places.T), radius)
    assert np.hypot(*velocities.T) == pytest.approx(speed, rel=0.02)
    np.testing.assert_allclose(places, np.roll(places, 1, axis=0) + SECONDS * velocities, atol=1e-12)
    turning = np.sign(places[0, 0] * velocities[0, 1] - places[0, 1] * velocities[0, 0])
    assert turning == (-1 if clockwise else 1)
    if clockwise:
        return
    world = Circle()
    world.place({"position": places[0], "velocity": velocities[0]})
    exact = 2 * math.pi * radius / (len(places) * SECONDS)
    for k in range(1, 2 * len(places)):
        state = world.tell()["body"]
        world.step(circling_action(state[:2], state[2:], exact, radius))
        np.testing.assert_allclose(world.tell()["body"][:2], places[k % len(places)], atol=1e-9)


def test_circles_that_are_none_are_refused() -> None:
    for radius, speed in ((0.0, 1.0), (1.0, -1.0), (1.0, math.nan), (math.inf, 1.0), (0.01, 10.0)):
        with pytest.raises(ConfigError, match="circle_motion"):
            circle_motion(radius, speed)


def test_registered_worlds_and_their_player() -> None:
    for name in ("UnderstudyCircle-v0", "UnderstudyCircleSpeed-v0"):
        env, player = make_env(name), find_controller(name)
        assert can_terminate(name) is False
        assert control_facts(name) == {"control_step": SECONDS}
        seen: Any = env.reset(seed=1)[0]
        rewards = []
        for _ in range(200):
            seen, reward, _, over, _ = env.step(player(seen, 1.0).astype(np.float32))
            rewards.append(float(reward))
        assert over
        assert np.hypot(*seen["position"]) == pytest.approx(1.0, abs=1e-3)
        assert sum(rewards[100:]) == pytest.approx(100.0 if "Speed" in name else 0.0, abs=1e-2)
    assert len(np.unique(Circle().render().reshape(-1, 3), axis=0)) > 5
