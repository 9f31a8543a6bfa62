"""Recordings: real steps of real environments, and the real files that came from them, as steps to replay."""

from typing import Any

import numpy as np

from understudy.envs.gym import make_env
from understudy.envs.physics.agreement import Steps, following, sample_rows
from worlds import real_data


def record(env_id: str, count: int = 60, seed: int = 0) -> Steps:
    """Random play."""
    env = make_env(env_id)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    rows: list[tuple[Any, ...]] = []
    episode = 0
    for _ in range(count):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, after, reward, terminated, episode))
        episode += terminated or truncated
        observation = env.reset()[0] if terminated or truncated else after
    observations, actions, afters, rewards, ends, episodes = (np.array(column) for column in zip(*rows, strict=True))
    return Steps(observations, actions, afters, rewards, following(rewards, episodes), ends)


def recording(name: str, flag: str | None = None, limit: int = 500) -> Steps:
    """A sample of a real file, with one of its columns as the terminal flag."""
    with np.load(real_data(f"{name}.npz"), allow_pickle=False) as file:
        columns = {key: file[key] for key in file.files}
    rewards, terminated = columns["rewards"], columns[flag] if flag is not None else None
    late = following(rewards, columns["episode_id"])
    steps = Steps(columns["observations"], columns["actions"], columns["next_observations"], rewards, late, terminated)
    ends = np.flatnonzero(terminated) if terminated is not None else np.empty(0, dtype=np.int64)
    return steps.take(sample_rows(len(rewards), ends, limit))
