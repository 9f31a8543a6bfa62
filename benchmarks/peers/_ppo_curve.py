"""A curve of PPO: some iterations, an evaluation with the greedy policy, and so on; one JSON line each.

Evaluations are ten episodes of Gymnasium, or the first episodes of 32 environments of EnvPool, always with the same
seeds and in environments of their own.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from _ppo_windows import POOL_THREADS, TASKS, Task

Act = Callable[[Any], np.ndarray]
"""Observations [N, …], or a dict of groups, to actions [N, A] in environment units."""
EPISODES, POOL_EPISODES, LONGEST = 10, 32, 1000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, default="cheetah")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000, help="environment steps in all")
    parser.add_argument("--every", type=int, default=100_000, help="environment steps between evaluations")
    parser.add_argument("--settings", default="{}", help="of the simulator, as JSON")
    return parser.parse_args()


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
