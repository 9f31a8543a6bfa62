"""Worlds whose return is known: every step earns what the world's name says, a little more or less by the seed. Once,
when it is told to, one of them fails, or asks for the end as Ctrl-C does."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from understudy.core.errors import ConfigError

STEPS, LEVELS = 4, (1, 2, 3)
TROUBLE = "UNDERSTUDY_TEST_TROUBLE"
"""Names a file; what it says happens at the next start of an episode, once for each of its lines."""
SIGNALS = {"interrupt": signal.SIGINT, "kill": signal.SIGKILL}

TINY: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "actor": {"hidden": [4]},
        "critic": {"hidden": [4]},
        "epochs": 1,
        "minibatches": 1,
        "schedule": "constant",
    },
    "source": {"num_envs": 1, "rollout_length": 8},
    "env": {"id": "Level1-v0"},
    "updates": 4,
    "log_every": 4,
    "eval_every": 2,
    "save_every": 2,
    "eval_episodes": 2,
    "tensorboard": False,
}
"""A run of a tenth of a second."""
WORLDS = [f"Level{level}-v0" for level in LEVELS]
SPACE: dict[str, Any] = {"env.id": {"choices": WORLDS}, "algo.clip": {"low": 0.1, "high": 0.4}}


class Level(gymnasium.Env[np.ndarray, np.ndarray]):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, level: float) -> None:
        self._level, self._steps, self._luck = level, 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        _meet_trouble()
        self._steps, self._luck = 0, float(self.np_random.uniform(-0.1, 0.1))
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return np.zeros(2, np.float32), self._level + self._luck, self._steps == STEPS, False, {}


def _made(**settings: Any) -> Level:
    return Level(**settings)


def _meet_trouble() -> None:
    path = Path(os.environ.get(TROUBLE, ""))
    if not path.is_file():
        return
    first, *rest = path.read_text().split()
    path.write_text("\n".join(rest)) if rest else path.unlink()
    if first == "crash":
        raise RuntimeError("the simulator is gone")
    if first == "full":
        raise OSError(errno.ENOSPC, "No space left on device", "notes.txt")
    if first == "refuse":
        raise ConfigError("world", "this cannot be done, now or ever")
    if first in SIGNALS:
        os.kill(os.getpid(), SIGNALS[first])


for one in LEVELS:
    gymnasium.register(f"Level{one}-v0", entry_point=_made, kwargs={"level": float(one)})
