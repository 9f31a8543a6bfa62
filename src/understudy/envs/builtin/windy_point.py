"""A puck in the wind, seen through poor sensors, while the critic sees it as it is: for asymmetric actors and critics.

`UnderstudyWindyPoint-v0` pushes the puck by a force [2], `UnderstudyWindyThrusters-v0` by two thrusters that each push
back, not, or forth (MultiDiscrete [3, 3]). It shall come to the origin and stay there. Every episode has its own wind
and its own mass, and neither is among what the actor sees.

`state` [4]       position and velocity, each with Gaussian noise: what a policy has when it acts
`privileged` [7]  position, velocity, wind and mass as they are: what is known in simulation only

    v ← v + Δ·(action + wind − v/2)/mass,   x ← x + Δ·v,   reward = −Δ·|x|² − Δ·|action|²/20
"""

from collections.abc import Mapping
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.envs.builtin.canvas import FAINT, INK, PAPER, Canvas, Frame

Observation = dict[str, NDArray[np.float32]]
SECONDS = 0.1
"""Δ, of one step."""
DRAG, EFFORT = 0.5, 0.05
WIND, MASSES = 0.7, (0.5, 2.0)
"""The wind's largest force along each axis, where the puck's own is 1; and between what its mass is drawn."""
START, WALL = 1.5, 3.0
"""How far from the origin along each axis it begins at most, and where walls stop it."""
NOISE = 0.3
"""σ of the sensors."""
SIDE, MARGIN = 320, 16
"""Pixels of a picture, and of what is outside the walls."""


@final
class WindyPoint(gymnasium.Env[Any, NDArray[Any]]):
    """`thrusters`: two choices of three in place of a force."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, thrusters: bool = False, noise: float = NOISE, wind: float = WIND, render_mode: str | None = None
    ) -> None:
        self._noise, self._wind_limit, self.render_mode = noise, wind, render_mode
        self.observation_space = spaces.Dict(
            {
                "state": spaces.Box(-np.inf, np.inf, (4,), np.float32),
                "privileged": spaces.Box(-np.inf, np.inf, (7,), np.float32),
            }
        )
        self._thrusters = thrusters
        self.action_space = spaces.MultiDiscrete([3, 3]) if thrusters else spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._position, self._velocity, self._wind, self._mass = np.zeros(2), np.zeros(2), np.zeros(2), 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-START, START, 2)
        self._velocity = np.zeros(2)
        self._wind = self.np_random.uniform(-self._wind_limit, self._wind_limit, 2)
        self._mass = float(np.exp(self.np_random.uniform(*np.log(MASSES))))
        return self._observation(), {}

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        force = np.asarray(action, np.float64) - 1.0 if self._thrusters else np.maximum(np.minimum(action, 1.0), -1.0)
        self._velocity = self._velocity + SECONDS * (force + self._wind - DRAG * self._velocity) / self._mass
        wished = self._position + SECONDS * self._velocity
        self._position = np.maximum(np.minimum(wished, WALL), -WALL)
        self._velocity[self._position != wished] = 0.0
        distance = -SECONDS * float(self._position @ self._position)
        effort = -SECONDS * EFFORT * float(force @ force)
        terms = {"reward_distance": distance, "reward_effort": effort}
        return self._observation(), distance + effort, False, False, terms

    def _observation(self) -> Observation:
        true = np.concatenate([self._position, self._velocity])
        seen = true + self._noise * self.np_random.standard_normal(4)
        privileged = np.concatenate([true, self._wind, [self._mass]])
        return {"state": seen.astype(np.float32), "privileged": privileged.astype(np.float32)}

    def render(self) -> Frame:
        """Walls, the origin, the puck (the larger the heavier) with its velocity, and the wind in a corner."""
        canvas, scale = Canvas(SIDE, SIDE), (SIDE - 2 * MARGIN) / (2 * WALL)

        def place(point: NDArray[Any]) -> tuple[float, float]:
            return SIDE / 2 + scale * float(point[0]), SIDE / 2 - scale * float(point[1])

        canvas.bar((MARGIN - 4, MARGIN - 4), (SIDE - MARGIN + 4, SIDE - MARGIN + 4), INK)
        canvas.bar((MARGIN, MARGIN), (SIDE - MARGIN, SIDE - MARGIN), PAPER)
        for radius in (8.0, 24.0):
            canvas.ring(place(np.zeros(2)), radius, (47, 133, 90))
        corner = np.array([-0.8 * WALL, 0.8 * WALL])
        canvas.disc(place(corner), 4.0, FAINT)
        canvas.line(place(corner), place(corner + 0.6 * self._wind), (43, 108, 176), 3.0)
        canvas.line(place(self._position), place(self._position + self._velocity), (113, 128, 150), 3.0)
        canvas.disc(place(self._position), 9.0 * self._mass ** (1 / 3), (192, 86, 33))
        return canvas.frame()

    def tell(self) -> dict[str, NDArray[Any]]:
        """All but the generator."""
        return {"body": np.concatenate([self._position, self._velocity, self._wind, [self._mass]])}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        body = told["body"]
        self._position, self._velocity, self._wind = body[:2].copy(), body[2:4].copy(), body[4:6].copy()
        self._mass = float(body[6])
