"""Deep sea (Osband et al. 2019, bsuite): a treasure that only N steps to the right reach.

`UnderstudyDeepSea-v0`: a diver sinks one row at each of N = 12 steps, and moves one column to the left (0) or to the
right (1). Every step to the right costs 0.01/N. In the last row of the last column lies a treasure of 1: only who goes
right at every step gets it, which chance does once in 2^N episodes, while the reward says from the start: do not go.

`state` [N²]   1 in the cell where the diver is, 0 elsewhere; all 0 at the end
reward         1 − 0.01 for the treasure, −0.01·(share of steps to the right) without

Differs from bsuite in: 1 is the right in every column; bsuite draws it for each.
"""

from collections.abc import Mapping
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.envs.builtin.canvas import FAINT, INK, PAPER, Canvas, Frame

DEPTH = 12
"""N."""
COST = 0.01
"""Of going right all the way."""
CELL, MARGIN = 16, 8
"""Pixels of a cell, and around them all."""


@final
class DeepSea(gymnasium.Env[NDArray[np.float32], np.int64]):
    """`depth`: N, rows and columns."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, depth: int = DEPTH, render_mode: str | None = None) -> None:
        self._depth, self.render_mode = depth, render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (depth * depth,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._row, self._column = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._row, self._column = 0, 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        last, right = self._depth - 1, int(action) == 1
        treasure = right and self._column == self._row == last
        reward = float(treasure) - (COST / self._depth if right else 0.0)
        self._column = min(self._column + 1, last) if right else max(self._column - 1, 0)
        self._row += 1
        return self._observation(), reward, self._row == self._depth, False, {}

    def _observation(self) -> NDArray[np.float32]:
        cells = np.zeros(self._depth * self._depth, np.float32)
        if self._row < self._depth:
            cells[self._row * self._depth + self._column] = 1.0
        return cells

    def render(self) -> Frame:
        """The sea, the treasure, and the diver."""
        side = CELL * self._depth + 2 * MARGIN
        canvas = Canvas(side, side)

        def place(row: float, column: float) -> tuple[float, float]:
            return MARGIN + CELL * (column + 0.5), MARGIN + CELL * (row + 0.5)

        canvas.bar((MARGIN - 2, MARGIN - 2), (side - MARGIN + 2, side - MARGIN + 2), INK)
        canvas.bar((MARGIN, MARGIN), (side - MARGIN, side - MARGIN), PAPER)
        canvas.line(place(-0.5, -0.5), place(self._depth - 0.5, self._depth - 0.5), FAINT, 2.0)
        canvas.ring(place(self._depth - 1, self._depth - 1), 6.0, (47, 133, 90))
        canvas.disc(place(min(self._row, self._depth - 1), self._column), 5.0, (192, 86, 33))
        return canvas.frame()

    def tell(self) -> dict[str, NDArray[Any]]:
        """All but the generator."""
        return {"place": np.array([self._row, self._column])}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        self._row, self._column = map(int, told["place"])
