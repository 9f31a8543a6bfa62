"""A point mass in the plane, of which everything is known: for motions that are imitated, by style or by tracking.

`UnderstudyCircle-v0` rewards nothing; `UnderstudyCircleSpeed-v0` rewards a speed of 1 m/s, in whatever direction.

`position` [2]  and  `velocity` [2]: the whole state

    v ← v + Δ·(3·action − v/2),   x ← x + Δ·v,   reward = exp(−4·(|v| − speed)²), or 0

`circle_motion` gives a lap at some radius and speed, as states alone. It keeps to x ← x + Δ·v to the last digit, so a
policy that follows it without any error exists: `circling_action` is one.
"""

import math
from collections.abc import Mapping
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError
from understudy.envs.builtin.canvas import FAINT, INK, Canvas, Frame

Observation = dict[str, NDArray[np.float32]]
Floats = NDArray[np.float64]
SECONDS = 0.05
"""Δ, of one step."""
THRUST, DRAG = 3.0, 0.5
START = 1.5
"""How far from the origin along each axis it begins at most."""
SIDE, METRE = 320, 70.0
"""Pixels of a picture, and of a metre."""


@final
class Circle(gymnasium.Env[Any, NDArray[Any]]):
    """`speed`: what is rewarded; without one, nothing is."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    reference_channels = {"position": 2, "velocity": 2}  # noqa: RUF012

    def __init__(self, speed: float | None = None, render_mode: str | None = None) -> None:
        self._speed, self.render_mode, self.dt = speed, render_mode, SECONDS
        plane = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = spaces.Dict({"position": plane, "velocity": plane})
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._position, self._velocity = np.zeros(2), np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-START, START, 2)
        self._velocity = self.np_random.uniform(-1.0, 1.0, 2)
        return self._observation(), {}

    def place(self, state: Mapping[str, Floats]) -> Observation:
        """Begin in a state of a motion."""
        self._position, self._velocity = (np.array(state[name], np.float64) for name in self.reference_channels)
        return self._observation()

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        force = THRUST * np.maximum(np.minimum(np.asarray(action, np.float64), 1.0), -1.0)
        self._velocity = self._velocity + SECONDS * (force - DRAG * self._velocity)
        self._position = self._position + SECONDS * self._velocity
        return self._observation(), self._reward(), False, False, {}

    def _reward(self) -> float:
        if self._speed is None:
            return 0.0
        return math.exp(-4.0 * (math.hypot(*self._velocity) - self._speed) ** 2)

    def _observation(self) -> Observation:
        return {"position": self._position.astype(np.float32), "velocity": self._velocity.astype(np.float32)}

    def render(self) -> Frame:
        """Circles of one and two metres, and the mass with its velocity."""
        canvas = Canvas(SIDE, SIDE)
        for radius in (1.0, 2.0):
            canvas.ring((SIDE / 2, SIDE / 2), METRE * radius, FAINT)
        place, ahead = (
            (SIDE / 2 + METRE * float(point[0]), SIDE / 2 - METRE * float(point[1]))
            for point in (self._position, self._position + self._velocity)
        )
        canvas.line(place, ahead, INK, 3.0)
        canvas.disc(place, 9.0, (192, 86, 33))
        return canvas.frame()

    def tell(self) -> dict[str, NDArray[Any]]:
        """All but the generator."""
        return {"body": np.concatenate([self._position, self._velocity])}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        self._position, self._velocity = told["body"][:2].copy(), told["body"][2:].copy()


def circle_motion(radius: float = 1.0, speed: float = 1.0, *, clockwise: bool = False) -> dict[str, Floats]:
    """`position` and `velocity` [F, 2] of one lap around the origin, for a clip that is looped.

    A lap lasts whole steps: F is the nearest number of them, and the speed is so much as to fit.
    """
    if not (0 < radius < math.inf and 0 < speed < math.inf):
        raise ConfigError("circle_motion", "no circle", got=f"radius {radius}, speed {speed}", expected="both above 0")
    frames = round(2 * math.pi * radius / (speed * SECONDS))
    if frames < 3:
        raise ConfigError("circle_motion", "a lap takes less than three steps", got=f"speed {speed} at radius {radius}")
    angles = 2 * math.pi * np.arange(-1, frames) / frames * (-1 if clockwise else 1)
    places = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return {"position": places[1:], "velocity": np.diff(places, axis=0) / SECONDS}


def circling_action(position: Floats, velocity: Floats, speed: float = 1.0, radius: float = 1.0) -> Floats:
    """The action [2] that leads to the next place on the circle, as far as the thrust allows."""
    turn = math.atan2(position[1], position[0]) + speed * SECONDS / radius
    wished = (radius * np.array([math.cos(turn), math.sin(turn)]) - position) / SECONDS
    action: Floats = np.clip(((wished - velocity) / SECONDS + DRAG * velocity) / THRUST, -1.0, 1.0)
    return action


def circle_around(groups: Mapping[str, NDArray[Any]], skill: float) -> Floats:
    """To the unit circle and around it, counter-clockwise at 1 m/s; with less skill more slowly."""
    position, velocity = (np.asarray(groups[name], np.float64) for name in ("position", "velocity"))
    return circling_action(position, velocity, speed=skill)
