"""A world that writes down everything: what was seen, done, paid and found, and which episode and step it was."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


@dataclass
class Diary:
    """Of one environment."""

    seen: list[tuple[int, ...]] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    paid: list[float] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)


class DiaryEnv(gymnasium.Env[Any, Any]):
    """Sees who it is, the number of its episode, and the step: an observation is never met twice."""

    def __init__(self, diaries: list[Diary], *, discrete: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(5) if discrete else spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.diary = Diary()
        self.number, self.episode, self.time = len(diaries), -1, 0
        diaries.append(self.diary)

    def place(self) -> tuple[int, ...]:
        return self.number, self.episode, self.time

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return np.array(self.place(), np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        diary, chance = self.diary, self.np_random.random()
        diary.seen.append(self.place())
        self.time += 1
        terminated, truncated = bool(chance < 0.1), bool(0.1 <= chance < 0.2)
        diary.done.append(float(np.asarray(action).reshape(())[()] if np.ndim(action) == 0 else action[0]))
        diary.paid.append(float(np.float32(chance)))
        diary.after.append(self.place())
        diary.terminated.append(terminated)
        diary.truncated.append(truncated)
        return np.array(self.place(), np.float32), diary.paid[-1], terminated, truncated, {}
