"""Real rollouts as recordings, whole or broken in some way, and what a check finds in them."""

from dataclasses import replace
from typing import Any

import numpy as np

from understudy.core.spec import ActionSpace, Box
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.data.recording import Recording
from understudy.data.transforms import Mending, mend
from understudy.envs.gym import make_env
from understudy.run.overrides import apply_override
from understudy.tools.dataset.check import Report, check_dataset
from understudy.tools.dataset.reference_env import open_world, quiet_versions

PENDULUM = Box((-2.0,), (2.0,))


def rollouts(env_id: str, count: int = 3, limit: int = 200, seed: int = 0) -> list[Episode]:
    """Random play as it was, in double precision."""
    with quiet_versions():
        env = make_env(env_id).unwrapped
    env.action_space.seed(seed)
    return [_rollout(env, limit, seed + number) for number in range(count)]


def _rollout(env: Any, limit: int, seed: int) -> Episode:
    observations, rewards, terminated = [env.reset(seed=seed)[0]], [], False
    actions: list[Any] = []
    while len(actions) < limit and not terminated:
        actions.append(env.action_space.sample())
        observation, reward, terminated, _, _ = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
    state = np.array(observations, np.float64)
    return Episode({"state": state}, np.array(actions), np.array(rewards), terminated, not terminated)


def recording(episodes: list[Episode], **facts: Any) -> Recording:
    return replace(open_recording(episodes), name="log", **facts)


def check(episodes: list[Episode], env_id: str | None = None, **facts: Any) -> Report:
    return check_dataset(recording(episodes, **facts), open_world(env_id) if env_id else None)


def found(report: Report, level: str) -> dict[str, str]:
    """Kind to message."""
    return {finding.kind: finding.message for finding in report.findings if finding.level == level}


def mended(report: Report, episodes: list[Episode], space: ActionSpace) -> Recording:
    words: dict[str, Any] = {}
    for setting in report.settings:
        apply_override(words, setting)
    return mend(recording(episodes), Mending.parse(words), space)


def played(env_id: str, actions: Any, seed: int = 1) -> Episode:
    """These actions, whatever they are."""
    with quiet_versions():
        env: Any = make_env(env_id).unwrapped
    observations, rewards = [env.reset(seed=seed)[0]], []
    for action in actions:
        observation, reward, *_ = env.step(action)
        observations.append(observation)
        rewards.append(reward)
    return Episode({"state": np.array(observations, np.float64)}, actions, np.array(rewards), False, True)


def cut(episode: Episode, first: int, end: int) -> Episode:
    last = end == len(episode.actions)
    return replace(
        episode,
        observations={"state": episode.observations["state"][first : end + 1].copy()},
        actions=episode.actions[first:end],
        rewards=episode.rewards[first:end],
        terminated=episode.terminated and last,
        truncated=not (episode.terminated and last),
    )


def frozen_lake(steps: int) -> Episode:
    rng = np.random.default_rng(steps)
    state = np.eye(16, dtype=np.uint8)[rng.integers(0, 16, steps + 1)]
    return Episode({"state": state}, rng.integers(0, 4, steps), rng.integers(0, 2, steps).astype(float), True, False)


def odd_episode(rng: np.random.Generator) -> Episode:
    """Right shapes, mostly, and any numbers at all."""
    steps, known = int(rng.integers(0, 15)), bool(rng.random() < 0.7)
    state, actions, rewards = (odd_numbers(rng, shape) for shape in ((steps + known, 3), (steps, 1), (steps,)))
    state = state[:-1] if rng.random() < 0.1 else state
    return Episode({"state": state}, actions, rewards, bool(rng.random() < 0.5), bool(rng.random() < 0.3), known)


def odd_numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    values = rng.standard_normal(shape)
    if rng.random() < 0.2:
        values *= 10.0 ** rng.integers(-30, 300)
    if rng.random() < 0.2 and values.size:
        values.flat[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return values.astype(rng.choice(["float64", "float64", "float64", "bool"])) if rng.random() < 0.3 else values
