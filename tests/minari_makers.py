"""Minari datasets made by the real package, from environments really played."""

import warnings
from typing import Any

import gymnasium
import minari  # type: ignore[import-untyped]
import numpy as np
from gymnasium import spaces
from minari.data_collector.episode_buffer import EpisodeBuffer  # type: ignore[import-untyped]


class Nested(gymnasium.Env[Any, Any]):
    """A world with named observations, one of them a choice, one of them words, and actions counted from 1."""

    observation_space = spaces.Dict(
        {
            "body": spaces.Dict({"joints": spaces.Box(-1, 1, (2,)), "grip": spaces.Box(0, 9, (1, 2), np.int32)}),
            "room": spaces.Discrete(3, start=5),
            "order": spaces.Text(8),
        }
    )
    action_space = spaces.Discrete(4, start=1)

    def __init__(self) -> None:
        self._clock = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._clock = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._clock += 1
        return self._see(), float(action), self._clock == 4, False, {}

    def _see(self) -> dict[str, Any]:
        joints = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        grip = self.np_random.integers(0, 9, (1, 2)).astype(np.int32)
        room = 5 + self._clock % 3
        return {"body": {"joints": joints, "grip": grip}, "room": np.int64(room), "order": "go"}


def stacked(values: list[Any]) -> Any:
    """What EpisodeBuffer holds: lists of arrays in dicts."""
    if isinstance(values[0], dict):
        return {key: stacked([value[key] for value in values]) for key in values[0]}
    return list(values) if isinstance(values[0], str) else np.stack([np.asarray(value) for value in values])


def played(env: "gymnasium.Env[Any, Any]", episodes: int, infos: tuple[str, ...] = ()) -> list[Any]:
    buffers = []
    env.action_space.seed(0)
    for seed in range(episodes):
        seen, info = env.reset(seed=seed)
        observations, told = [seen], [info]
        actions: list[Any] = []
        rewards: list[float] = []
        ends: list[bool] = []
        cuts: list[bool] = []
        while not (ends and (ends[-1] or cuts[-1])):
            actions.append(env.action_space.sample())
            seen, reward, ended, cut, info = env.step(actions[-1])
            observations.append(seen)
            told.append(info)
            rewards.append(float(reward))
            ends.append(ended)
            cuts.append(cut)
        kept = {name: np.stack([np.asarray(info[name]) for info in told]) for name in infos}
        buffers.append(
            EpisodeBuffer(seed, seed, None, stacked(observations), stacked(actions), rewards, ends, cuts, kept or None)
        )
    return buffers


def make_minari(
    env_id: str, name: str, episodes: int = 3, infos: tuple[str, ...] = (), steps: int | None = None, **settings: Any
) -> Any:
    """A dataset of random play in MINARI_DATASETS_PATH."""
    env = gymnasium.make(env_id, max_episode_steps=steps)
    return _create(name, played(env, episodes, infos), env=env, **settings)


def make_from(env: "gymnasium.Env[Any, Any]", name: str, episodes: int = 3, **settings: Any) -> Any:
    """A dataset of an environment that is not registered."""
    buffers = played(env, episodes)
    return _create(name, buffers, observation_space=env.observation_space, action_space=env.action_space, **settings)


def _create(*buffers: Any, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari misses an author and more in each of them
        return minari.create_dataset_from_buffers(*buffers, **settings)
