"""Scripted players, in environment units, with a skill between 0 and 1; each is made once for a live environment."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, did_you_mean
from understudy.envs.builtin.battle.player import play_battle
from understudy.envs.builtin.bullet import bound
from understudy.envs.builtin.point_maze import make_waypoint_player
from understudy.envs.gym import Env

Controller = Callable[[Mapping[str, NDArray[Any]], float], NDArray[np.float64]]
"""Observation groups and skill → action [A]. A pure function: what it knows of the world it learned when made."""


def swing_up_pendulum(groups: Mapping[str, NDArray[Any]], skill: float) -> NDArray[np.float64]:
    """Pump energy until the pendulum can reach the top, then hold it there.

    Less skill aims for too much energy and holds more weakly, so the pendulum whirls past the top.
    """
    cosine, sine, velocity = (float(value) for value in groups["state"])
    angle = np.arctan2(sine, cosine)
    if abs(angle) < 0.5 and abs(velocity) < 3.0:
        return np.array([-skill * (10.0 * angle + 2.0 * velocity)])
    energy_at_top = 15.0
    goal = energy_at_top + 10.0 * (1.0 - skill)
    energy = 0.5 * velocity**2 + energy_at_top * cosine
    direction = 1.0 if velocity >= 0 else -1.0
    return np.array([direction * np.clip(goal - energy, -2.0, 2.0)])


def balance_pole(groups: Mapping[str, NDArray[Any]], skill: float) -> NDArray[np.float64]:
    """Push the cart to the side the pole leans and falls to, and lean toward the middle of the track.

    Half the skill sees the angle alone and swings the pole up to its fall; with less, speeds are read backwards.
    """
    position, velocity, angle, spin = (float(value) for value in groups["state"])
    foresight = 2.0 * skill - 1.0
    return np.array(float(angle + foresight * (0.4 * spin + 0.05 * position + 0.1 * velocity) > 0))


MAZES = ("UMaze", "Medium", "Large", "Open")
CONTROLLERS: dict[str, Callable[[Env], Controller]] = {
    "Pendulum-v1": lambda env: swing_up_pendulum,
    "CartPole-v1": lambda env: balance_pole,
    **{
        f"PointMaze_{maze}{places}{reward}-v3": make_waypoint_player
        for maze in MAZES
        for places in (("",) if maze == "UMaze" else ("", "_Diverse_G", "_Diverse_GR"))
        for reward in ("", "Dense")
    },
    "HalfCheetahBulletEnv-v0": lambda env: bound,
    "UnderstudyBattle-v0": lambda env: play_battle,
    "UnderstudyBattleScripted-v0": lambda env: play_battle,
}
"""Environment id → what makes its player."""


def find_controller(env_id: str) -> Callable[[Env], Controller]:
    """What makes the environment's player, or an error if there is none."""
    if env_id not in CONTROLLERS:
        raise ConfigError(f"environment '{env_id}'", "has no scripted controller", do=did_you_mean(env_id, CONTROLLERS))
    return CONTROLLERS[env_id]


def make_controller(env: Env, env_id: str) -> Controller:
    """The player of a live environment."""
    return find_controller(env_id)(env)
