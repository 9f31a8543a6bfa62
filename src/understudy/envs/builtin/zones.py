"""A puck on a path through zones that turn its thrust: for skills that each know one kind of zone.

`UnderstudyZones-v0` has all kinds in a random order, `UnderstudyZonesGround-v0`, `…Mirror-v0`, `…Left-v0` and
`…Right-v0` one kind each. The puck shall move along the path at a wished speed. In a mirror all thrust goes the other
way, and is half as strong where nothing but mirrors is; a swirl turns it by a quarter, to the left or to the right, and
where other zones are there, too, it has a speed limit that the command does not tell.

`state` [9]   velocity (2), offset from the path, command (the wished speed), last_action (2), zone (mirror, swirl; both
              0 on the ground) and spin (1: to the left, −1: to the right, 0: no swirl)

    v ← v + Δ·(thrust·R·action − 0.8·v),   x ← x + Δ·v,   reward = exp(−2·|v − (speed, 0)|² − offset²)
"""

from collections.abc import Mapping
from typing import Any, Literal, final, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.envs.builtin.canvas import FAINT, INK, PAPER, Canvas, Frame

Observation = dict[str, NDArray[np.float32]]
Kind = Literal["ground", "mirror", "left", "right"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TURNS = np.array([[[1, 0], [0, 1]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]], [[0, 1], [-1, 0]]], np.float64)
"""R of each kind."""
MARKS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, -1]], np.float64)
"""Zone and spin as they are seen in each kind."""
LIMITS = np.array([np.inf, np.inf, 0.5, 0.5])
"""Speeds that count in zones among others."""
SECONDS, DRAG, THRUST = 0.1, 0.8, 2.0
"""Δ, of one step; of the puck; and what its action is multiplied by."""
LENGTH, ZONES = 1.5, 12
"""Of a zone along the path, and after how many they come again."""
SPEEDS, AMONG = (0.3, 1.2), (0.8, 1.2)
"""Between what the command is drawn, where all zones are of one kind and where they are not."""
WIDTH, HEIGHT, SCALE = 480, 160, 40.0
"""Pixels of a picture, and of a metre."""
COLOURS = ((226, 232, 240), (190, 227, 248), (198, 246, 213), (254, 235, 200))


@final
class Zones(gymnasium.Env[Any, NDArray[Any]]):
    """`kind`: of all zones; without one they are of all kinds."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, kind: Kind | None = None, thrust: float = THRUST, render_mode: str | None = None) -> None:
        self._kind, self._thrust, self.render_mode = kind, thrust, render_mode
        self.observation_space = spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (9,), np.float32)})
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._position, self._velocity, self._action = np.zeros(2), np.zeros(2), np.zeros(2)
        self._command, self._kinds = 0.0, np.zeros(ZONES, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = np.array([0.0, self.np_random.uniform(-0.3, 0.3)])
        self._velocity, self._action = np.zeros(2), np.zeros(2)
        self._command = float(self.np_random.uniform(*(AMONG if self._kind is None else SPEEDS)))
        if self._kind is None:
            self._kinds = self.np_random.permutation(np.arange(ZONES) % len(KINDS))
        else:
            self._kinds = np.full(ZONES, KINDS.index(self._kind))
        return self._observation(), {}

    def _here(self) -> int:
        """The kind of zone the puck is in."""
        return int(self._kinds[int(self._position[0] // LENGTH) % ZONES])

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        kind = self._here()
        self._action = np.maximum(np.minimum(np.asarray(action, np.float64), 1.0), -1.0)
        force = self._thrust * TURNS[kind] @ self._action
        self._velocity = self._velocity + SECONDS * (force - DRAG * self._velocity)
        self._position = self._position + SECONDS * self._velocity
        speed = self._command if self._kind is not None else min(self._command, float(LIMITS[kind]))
        error = self._velocity - np.array([speed, 0.0])
        reward = float(np.exp(-2.0 * error @ error - self._position[1] ** 2))
        return self._observation(), reward, False, False, {}

    def _observation(self) -> Observation:
        body = [*self._velocity, self._position[1], self._command, *self._action, *MARKS[self._here()]]
        return {"state": np.asarray(body, np.float32)}

    def render(self) -> Frame:
        """The zones around the puck, the path, and the puck with its velocity."""
        canvas, middle = Canvas(WIDTH, HEIGHT), HEIGHT / 2
        left = self._position[0] - WIDTH / 2 / SCALE
        for number in range(int(left // LENGTH), int((left + WIDTH / SCALE) // LENGTH) + 1):
            start = (number * LENGTH - left) * SCALE
            ends = max(start, 0.0), min(start + LENGTH * SCALE, float(WIDTH))
            canvas.bar((ends[0], 0.0), (ends[1], float(HEIGHT)), COLOURS[self._kinds[number % ZONES]])
        canvas.line((0.0, middle), (float(WIDTH), middle), PAPER, 3.0)
        across = float(np.clip(middle - SCALE * self._position[1], 10.0, HEIGHT - 10.0))
        puck = (WIDTH / 2, across)
        ahead = (puck[0] + SCALE * self._velocity[0], puck[1] - SCALE * self._velocity[1])
        canvas.line(puck, ahead, INK, 3.0)
        canvas.disc(puck, 9.0, (192, 86, 33))
        canvas.ring(puck, 9.0, FAINT)
        return canvas.frame()

    def tell(self) -> dict[str, NDArray[Any]]:
        """All but the generator."""
        body = np.concatenate([self._position, self._velocity, self._action, [self._command]])
        return {"body": body, "kinds": self._kinds.copy()}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        body = told["body"]
        self._position, self._velocity, self._action = body[:2].copy(), body[2:4].copy(), body[4:6].copy()
        self._command, self._kinds = float(body[6]), told["kinds"].copy()
