"""Scripted players, in environment units, with a skill between 0 and 1; some made once for a live environment."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, did_you_mean
from understudy.envs.builtin.battle.player import play_battle
from understudy.envs.builtin.bullet import bound
from understudy.envs.builtin.circle import circle_around
from understudy.envs.builtin.point_maze import make_waypoint_player
from understudy.envs.gym import Env, make_env

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


def stand_up_go1(groups: Mapping[str, NDArray[Any]], skill: float) -> NDArray[np.float64]:
    """Bring every joint of a Unitree Go1 home, which lifts one that lies on its belly and no other.

    The simulator aims 0.5·action beyond where a joint is. Less skill pulls more weakly, and the legs sag.
    """
    away_from_home = np.asarray(groups["state"][6:18], np.float64)
    return np.clip(-3.2 * skill * away_from_home, -1.0, 1.0)


MAZES = ("UMaze", "Medium", "Large", "Open")
ALWAYS: dict[str, Controller] = {
    "Pendulum-v1": swing_up_pendulum,
    "CartPole-v1": balance_pole,
    "Go1Getup-v1": stand_up_go1,
    "HalfCheetahBulletEnv-v0": bound,
    "UnderstudyCircle-v0": circle_around,
    "UnderstudyCircleSpeed-v0": circle_around,
    "UnderstudyBattle-v0": play_battle,
    "UnderstudyBattleScripted-v0": play_battle,
}
"""Environment id → its player, which needs to know nothing of the world but what is observed."""
MADE: dict[str, Callable[[Env], Controller]] = {
    f"PointMaze_{maze}{places}{reward}-v3": make_waypoint_player
    for maze in MAZES
    for places in (("",) if maze == "UMaze" else ("", "_Diverse_G", "_Diverse_GR"))
    for reward in ("", "Dense")
}
"""Environment id → what makes its player of a live environment."""
CONTROLLERS = (*ALWAYS, *MADE)
"""Environments that have a player."""


def check_controller(env_id: str) -> None:
    """An error if the environment has no player."""
    if env_id not in CONTROLLERS:
        raise ConfigError(f"environment '{env_id}'", "has no scripted controller", do=did_you_mean(env_id, CONTROLLERS))


def find_controller(env_id: str) -> Controller:
    """The player of an environment, which is opened for a moment if its player has to know it."""
    check_controller(env_id)
    if env_id in ALWAYS:
        return ALWAYS[env_id]
    with closing(make_env(env_id)) as env:
        return MADE[env_id](env)
