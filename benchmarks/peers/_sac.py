"""What every SAC peer measures, with the settings that all of them have.

256-256 ReLU networks, batches of 256, Adam 3e-4, γ .99, τ .005, a learned temperature, a buffer of a million steps,
random actions at first, one update for every environment step: with 16 environments, 16 after each of their common
steps. A window counts environment steps, and so updates.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _windows import window_options

TASKS = {"cheetah": "HalfCheetah-v5", "hopper": "Hopper-v5"}
BATCH, HIDDEN, GAMMA, POLYAK, LEARNING_RATE, BUFFER = 256, (256, 256), 0.99, 0.005, 3e-4, 1_000_000
WARMUP_STEPS = 1024
"""Random steps before a window is measured."""
EPISODES, FIRST_SEED = 10, 1000
"""Of an evaluation: the same episodes for everybody."""
Act = Callable[[np.ndarray], np.ndarray]
"""Observations [N, S] to actions [N, A] in environment units."""


def speed_options(parser: argparse.ArgumentParser) -> None:
    window_options(parser, 100)
    parser.add_argument("--task", choices=TASKS, default="cheetah")
    parser.add_argument("--envs", type=int, default=1, help="environments that step together")
    parser.add_argument("--compile", action="store_true", help="compile the update (understudy only)")


def curve_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=TASKS, default="cheetah")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300_000, help="environment steps in all")
    parser.add_argument("--every", type=int, default=10_000, help="environment steps between evaluations")
    parser.add_argument("--starts", type=int, default=10_000, help="random steps before the first update")
    parser.add_argument("--folder", required=True, help="where it is saved after each evaluation, and goes on from")


def baselines_settings(envs: int, starts: int, seed: int) -> dict[str, Any]:
    """In the words of Stable-Baselines3, which SBX has, too."""
    return {
        "seed": seed,
        "learning_rate": LEARNING_RATE,
        "buffer_size": BUFFER,
        "learning_starts": starts,
        "batch_size": BATCH,
        "tau": POLYAK,
        "gamma": GAMMA,
        "train_freq": 1,
        "gradient_steps": envs,
    }


def play(task: str, act: Act) -> list[float]:
    """Returns of the greedy policy."""
    import gymnasium

    envs = [gymnasium.make(TASKS[task]) for _ in range(EPISODES)]
    rows = np.stack([env.reset(seed=FIRST_SEED + number)[0] for number, env in enumerate(envs)])
    returns, playing = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while playing.any():
        actions = act(rows)
        for number in np.flatnonzero(playing):
            rows[number], reward, terminated, truncated, _ = envs[number].step(actions[number])
            returns[number] += float(reward)
            playing[number] = not (terminated or truncated)
    return [float(value) for value in returns]


def tell(name: str, options: argparse.Namespace, steps: int, seconds: float, returns: list[float]) -> str:
    """A line of a curve."""
    told = {"peer": name, "task": options.task, "seed": options.seed, "env_steps": steps}
    return json.dumps({**told, "seconds": round(seconds, 1), "return_mean": float(np.mean(returns))})


class Clock:
    """Seconds of learning, without those of evaluations."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._since
