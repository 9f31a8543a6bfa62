"""Stable-Baselines3's PPO and SAC: speed, or a curve; that of PPO with its VecNormalize for observations.

A policy of its has one observation for both networks: of Go1 they see `state`, which is less work than ours have.
With --normalize it is its VecNormalize, of observations only.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import _sac
import gymnasium
import numpy as np
import torch
from _ppo import (
    CLIP,
    EPOCHS,
    GAMMA,
    LARGEST_GRADIENT,
    LEARNING_RATE,
    MINIBATCHES,
    POOL_THREADS,
    TASKS,
    TRACE,
    TRANSITIONS,
    Task,
    curve_options,
    draw_curve,
    serve_phases,
    speed_options,
    task_of,
)
from _windows import THREADS, arguments, serve
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize


class Pool(VecEnv):
    """EnvPool as its users adapt it: ended environments are reset at once, as this library expects."""

    def __init__(self, task: Task, seed: int) -> None:
        import envpool

        self.pool = envpool.make_gymnasium(task.env, num_envs=task.count, seed=seed, num_threads=POOL_THREADS)
        self.group = task.groups[0] if isinstance(self.pool.observation_space, gymnasium.spaces.Dict) else None
        space = self.pool.observation_space if self.group is None else self.pool.observation_space[self.group]
        wide = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        action = self.pool.action_space
        super().__init__(
            task.count, wide, gymnasium.spaces.Box(np.float32(action.low), np.float32(action.high), dtype=np.float32)
        )
        self.type = action.dtype

    def _seen(self, raw: Any) -> np.ndarray:
        return (raw if self.group is None else raw[self.group]).astype(np.float32)

    def reset(self) -> np.ndarray:
        return self._seen(self.pool.reset()[0])

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions.astype(self.type)

    def step_wait(self) -> Any:
        raw, rewards, terminated, truncated, _ = self.pool.step(self.actions)
        obs, dones = self._seen(raw), terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            ended = np.flatnonzero(dones)
            for number in ended:
                infos[number] = {
                    "terminal_observation": obs[number].copy(),
                    "TimeLimit.truncated": bool(truncated[number]),
                }
            obs[ended] = self._seen(self.pool.reset(ended.astype(np.int32))[0])
        return obs, rewards, dones, infos

    def close(self) -> None:
        self.pool.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **settings: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def make_vector_env(task: Task, normalize: bool, seed: int = 0, processes: int = 1) -> VecEnv:
    kind = SubprocVecEnv if processes > 1 else DummyVecEnv
    world = Pool(task, seed) if task.pool else make_vec_env(task.env, task.count, seed=seed, vec_env_cls=kind)
    return VecNormalize(world, norm_reward=False) if normalize else world


def make_model(task: Task, *, normalize: bool, seed: int, processes: int = 1) -> PPO:
    hidden = list(task.hidden)
    return PPO(
        "MlpPolicy",
        make_vector_env(task, normalize, seed, processes),
        seed=seed,
        learning_rate=LEARNING_RATE,
        n_steps=task.steps,
        batch_size=TRANSITIONS // MINIBATCHES,
        n_epochs=EPOCHS,
        gamma=GAMMA,
        gae_lambda=TRACE,
        clip_range=CLIP,
        max_grad_norm=LARGEST_GRADIENT,
        policy_kwargs={"net_arch": {"pi": hidden, "vf": hidden}},
        device="cpu",
    )


def measure_speed(options: argparse.Namespace) -> None:
    torch.set_num_threads(THREADS)
    task = TASKS[options.task]
    model = make_model(task, normalize=options.normalize, seed=0, processes=options.processes)
    # a pool of Go1 takes gigabytes: nobody holds two
    idle = model.env.unwrapped if task.pool else make_vector_env(task, False, processes=options.processes)
    idle.reset()
    low, high = idle.action_space.low, idle.action_space.high
    actions = np.random.default_rng(0).uniform(low, high, (task.steps, task.count, *low.shape)).astype(np.float32)

    def training() -> None:
        model.learn(TRANSITIONS, log_interval=None, reset_num_timesteps=False)

    def environment() -> None:
        for action in actions:
            idle.step(action)

    training()
    _, callback = model._setup_learn(TRANSITIONS, reset_num_timesteps=False)

    def rollout() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, task.steps)

    serve_phases("sb3", {"environment": environment, "rollout": rollout, "training": training}, options)


def measure_curve(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    task = task_of(options)
    model = make_model(task, normalize=True, seed=options.seed)
    normalizer: Any = model.get_vec_normalize_env()

    def iterate() -> None:
        model.learn(TRANSITIONS, log_interval=None, reset_num_timesteps=False)

    def act(rows: Any) -> np.ndarray:
        seen = rows[task.groups[0]].astype(np.float32) if isinstance(rows, dict) else rows
        return model.predict(normalizer.normalize_obs(seen), deterministic=True)[0]

    draw_curve("sb3", options, iterate, act)


def make_sac(task: str, envs: int, starts: int, seed: int) -> SAC:
    settings = _sac.baselines_settings(envs, starts, seed)
    world = make_vec_env(_sac.TASKS[task], envs, seed=seed)
    return SAC("MlpPolicy", world, policy_kwargs={"net_arch": list(_sac.HIDDEN)}, device="cpu", **settings)


def measure_sac(options: argparse.Namespace) -> None:
    torch.set_num_threads(THREADS)
    model = make_sac(options.task, options.envs, _sac.WARMUP_STEPS, seed=0)
    model.learn(_sac.WARMUP_STEPS, log_interval=None)

    def run(steps: int) -> None:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)

    serve("sb3", run, options)


def measure_sac_curve(options: argparse.Namespace) -> None:
    """Saved after each evaluation with its buffer; what goes on from there begins a new episode."""
    torch.set_num_threads(1)
    folder, clock = Path(options.folder), _sac.Clock()
    folder.mkdir(parents=True, exist_ok=True)
    lines, saved, buffer = folder / "curve.jsonl", folder / "model.zip", folder / "buffer.pkl"
    model = make_sac(options.task, 1, options.starts, options.seed)
    done = 0
    if saved.exists() and buffer.exists() and lines.exists():
        model = SAC.load(saved, env=model.env, device="cpu")
        model.load_replay_buffer(buffer)
        done = model.num_timesteps
        kept = [line for line in lines.read_text().splitlines() if json.loads(line)["env_steps"] <= done]
        lines.write_text("".join(f"{line}\n" for line in kept))
        clock.seconds = json.loads(kept[-1])["seconds"]
    for target in range(done + options.every, options.steps + 1, options.every):
        with clock:
            model.learn(target - model.num_timesteps, log_interval=None, reset_num_timesteps=target == options.every)
        returns = _sac.play(options.task, lambda rows: model.predict(rows, deterministic=True)[0])
        with lines.open("a") as file:
            file.write(_sac.tell("sb3", options, target, clock.seconds, returns) + "\n")
        model.save_replay_buffer(buffer)
        model.save(saved)
    print(lines.read_text(), end="", flush=True)


def main() -> None:
    kinds = {"ppo": measure_speed, "ppo_curve": measure_curve, "sac": measure_sac, "sac_curve": measure_sac_curve}
    options = arguments(
        ppo=speed_options, ppo_curve=curve_options, sac=_sac.speed_options, sac_curve=_sac.curve_options
    )
    kinds[options.kind](options)


if __name__ == "__main__":
    main()
