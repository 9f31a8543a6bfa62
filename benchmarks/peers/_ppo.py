"""What every PPO peer measures, and how: speeds in windows, or a curve of returns, one JSON line each.

A window has three numbers. ``environment``: random actions and nothing else, through what the peer's users step.
``rollout``: with inference and everything stored. ``training``: whole iterations. All in iterations of 2,048
transitions a second. A curve is some iterations, an evaluation with the greedy policy, and so on: ten episodes of
Gymnasium, or the first episodes of 32 environments of EnvPool, always with the same seeds and in environments of their
own.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from _windows import turns, window_options

TRANSITIONS, MINIBATCHES, EPOCHS = 2048, 4, 5
LEARNING_RATE, GAMMA, TRACE, CLIP, LARGEST_GRADIENT = 3e-4, 0.99, 0.95, 0.2, 1.0
POOL_THREADS = os.cpu_count() or 1
Run = Callable[[], None]
Act = Callable[[Any], np.ndarray]
"""Observations [N, …], or a dict of groups, to actions [N, A] in environment units."""
EPISODES, POOL_EPISODES, LONGEST = 10, 32, 1000


@dataclass(frozen=True)
class Task:
    env: str
    count: int
    pool: bool
    hidden: tuple[int, ...] = (64, 64)
    groups: tuple[str, str] = ("state", "state")
    """What actor and critic see."""
    transitions: int = TRANSITIONS
    """Of an iteration."""
    activation: str = "tanh"
    initial_std: float = 1.0
    gamma: float = GAMMA
    entropy_coef: float = 0.0
    settings: Mapping[str, float] = field(default_factory=dict)
    """Of the simulator."""

    @property
    def steps(self) -> int:
        return self.transitions // self.count


GO1 = ("Go1JoystickFlatTerrain-v1", 64, True)
ASYMMETRIC = ("state", "privileged_state")
TASKS = {
    "cheetah": Task("HalfCheetah-v5", 16, False),
    "cheetah-envpool": Task("HalfCheetah-v4", 16, True),
    "go1": Task(*GO1, groups=ASYMMETRIC),
    "go1-wide": Task(*GO1, hidden=(512, 256, 128), groups=ASYMMETRIC),
    "go1-walk": Task(
        *GO1,
        hidden=(256, 128),
        groups=ASYMMETRIC,
        transitions=4096,
        activation="elu",
        initial_std=0.5,
        entropy_coef=0.002,
    ),
}


def speed_options(parser: argparse.ArgumentParser) -> None:
    window_options(parser, 2)
    parser.add_argument("--task", choices=TASKS, default="cheetah")
    parser.add_argument("--normalize", action="store_true", help="observations by their running mean and deviation")
    parser.add_argument(
        "--processes", type=int, default=1, help="of Gymnasium's environments; peers: 1 or one for each"
    )
    parser.add_argument("--memory", choices=("none", "gru", "lstm"), default="none", help="understudy only")


def curve_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=TASKS, default="cheetah")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000, help="environment steps in all")
    parser.add_argument("--every", type=int, default=100_000, help="environment steps between evaluations")
    parser.add_argument("--settings", default="{}", help="of the simulator, as JSON")


def serve_phases(name: str, phases: dict[str, Run], options: argparse.Namespace) -> None:
    """Warm everything up, then time each phase in every window; a run is one iteration."""
    for run in phases.values():
        run()
    print(json.dumps({"peer": name, "ready": True}), flush=True)
    for _ in turns(options):
        told: dict[str, float] = {}
        for phase, run in phases.items():
            wall, processor = time.perf_counter(), time.process_time()
            for _ in range(options.updates):
                run()
            told[phase] = options.updates / (time.perf_counter() - wall)
            told[f"{phase}_cpu"] = options.updates / (time.process_time() - processor)
        answer = {"updates_per_second": told["training"], "updates_per_cpu_second": told["training_cpu"]}
        print(json.dumps({"peer": name, **answer, **told}), flush=True)


def task_of(options: argparse.Namespace) -> Task:
    return replace(TASKS[options.task], settings=json.loads(options.settings))


def draw_curve(name: str, options: argparse.Namespace, iterate: Callable[[], None], act: Act) -> None:
    """`iterate` learns from one rollout."""
    task, done, spent = task_of(options), 0, 0.0
    for target in range(options.every, options.steps + 1, options.every):
        since = time.perf_counter()
        while done < target:
            iterate()
            done += task.transitions
        spent += time.perf_counter() - since
        returns = _play_pool(task, act) if task.pool else _play(task, act)
        told = {"peer": name, "task": options.task, "seed": options.seed, "env_steps": done, "seconds": spent}
        print(json.dumps({**told, "return_mean": float(np.mean(returns))}), flush=True)


def _play(task: Task, act: Act) -> np.ndarray:
    import gymnasium

    envs = [gymnasium.make(task.env) for _ in range(EPISODES)]
    rows = np.stack([env.reset(seed=1000 + number)[0] for number, env in enumerate(envs)])
    returns, playing = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while playing.any():
        actions = act(rows)
        for number in np.flatnonzero(playing):
            rows[number], reward, terminated, truncated, _ = envs[number].step(actions[number])
            returns[number] += float(reward)
            playing[number] = not (terminated or truncated)
    return returns


def _play_pool(task: Task, act: Act) -> np.ndarray:
    import envpool

    pool = envpool.make_gymnasium(
        task.env, num_envs=POOL_EPISODES, seed=1000, num_threads=POOL_THREADS, **task.settings
    )
    low, high, kind = pool.action_space.low, pool.action_space.high, pool.action_space.dtype
    rows, _ = pool.reset()
    returns, playing = np.zeros(POOL_EPISODES), np.ones(POOL_EPISODES, bool)
    for _ in range(LONGEST):
        rows, rewards, terminated, truncated, _ = pool.step(np.clip(act(rows), low, high).astype(kind))
        returns += np.where(playing, rewards, 0.0)
        playing &= ~(terminated | truncated)
        if not playing.any():
            break
    pool.close()
    return returns
