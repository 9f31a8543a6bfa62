"""CartPole seen through a small camera: `UnderstudyCartPolePixels-v0`. Drawn by NumPy: no screen, no OpenGL.

`pixels` [2, 24, 32] are the look three steps ago and the look now, bytes. Edges are soft: a pixel is as bright as the
share of it that is covered, so a movement of a tenth of a pixel still shows. CartPole can be learned from these two
looks alone, for positions are in the second and velocities in what differs. In one step too little does.
"""

import math
from collections.abc import Mapping
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

from understudy.envs.builtin.canvas import Frame

Pixels = NDArray[np.uint8]
Observation = dict[str, Pixels]
HEIGHT, WIDTH = 24, 32
AGE = 3
"""Steps between the two looks."""
ENLARGED = 16
"""Pixels of a picture for each of the camera's."""
REACH = 2.4
"""Metres from the middle to where an episode ends; a little more is drawn."""
METRE = WIDTH / (2 * REACH + 0.8)
"""Pixels of a metre."""
CART_ROW, POLE_LENGTH = 20, 19.0
"""The cart's upper edge, and the pole from there, in pixels."""
CART_HALF, CART_HEIGHT, POLE_HALF = 2.5, 3, 0.9
CART_SHADE, POLE_SHADE = np.float32(120), np.float32(255)

_COLUMNS = np.arange(WIDTH, dtype=np.float32) + np.float32(0.5)
_ABOVE = np.arange(CART_ROW, 0, -1, dtype=np.float32)[:, None] - np.float32(0.5)
"""How far each row over the cart is above it [20, 1]."""


def draw(position: float, angle: float) -> Pixels:
    """Cart (metres from the middle) and pole (radians from upright, positive to the right) [24, 32]."""
    image = np.zeros((HEIGHT, WIDTH), np.uint8)
    columns = _COLUMNS - np.float32(WIDTH / 2 + METRE * position)
    top = max(0, math.ceil(CART_ROW - POLE_LENGTH * math.cos(angle) - 0.5))
    pole = columns - np.float32(math.tan(angle)) * _ABOVE[top:]
    image[top:CART_ROW] = POLE_SHADE * _covered(pole, POLE_HALF)
    image[CART_ROW : CART_ROW + CART_HEIGHT] = CART_SHADE * _covered(columns, CART_HALF)
    return image


def _covered(distance: NDArray[np.float32], half: float) -> NDArray[np.float32]:
    """The share of a pixel, by its distance from the middle of a bar of a given half width; written over it."""
    np.abs(distance, out=distance)
    np.subtract(np.float32(half + 0.5), distance, out=distance)
    np.maximum(distance, np.float32(0), out=distance)
    return np.minimum(distance, np.float32(1), out=distance)


@final
class CartPolePixels(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its memory is the looks since the older one."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(CartPoleEnv(render_mode=render_mode))
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
        self.observation_space = spaces.Dict({"pixels": spaces.Box(0, 255, (2, HEIGHT, WIDTH), np.uint8)})
        self._looks = np.zeros((AGE + 1, HEIGHT, WIDTH), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        state, info = self.env.reset(seed=seed, options=options)
        self._looks[:] = _look(state)
        return self._seen(), info

    def step(self, action: np.int64) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = self.env.step(action)
        self._looks[:-1] = self._looks[1:]
        self._looks[-1] = _look(state)
        return self._seen(), reward, terminated, truncated, info

    def _seen(self) -> Observation:
        return {"pixels": self._looks[[0, -1]]}

    def render(self) -> Frame:
        """What the camera sees now, enlarged."""
        return np.repeat(np.kron(self._looks[-1], np.ones((ENLARGED, ENLARGED), np.uint8))[:, :, None], 3, 2)

    def tell(self) -> dict[str, NDArray[Any]]:
        return {"looks": self._looks.copy()}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        self._looks[:] = told["looks"]


def _look(state: NDArray[Any]) -> Pixels:
    return draw(float(state[0]), float(state[2]))
