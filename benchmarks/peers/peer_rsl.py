"""rsl-rl-lib's PPO: speed, or a curve with its empirical normalisation.

Its own runner's loop without its console output. With --normalize both networks have their empirical normalisation.
"""

import argparse
import sys
from contextlib import redirect_stdout
from typing import Any

import gymnasium
import numpy as np
import torch
from _ppo import (
    CLIP,
    EPOCHS,
    LARGEST_GRADIENT,
    LEARNING_RATE,
    MINIBATCHES,
    POOL_THREADS,
    TASKS,
    TRACE,
    Task,
    curve_options,
    draw_curve,
    serve_phases,
    speed_options,
    task_of,
)
from _windows import THREADS, arguments
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict


class World(VecEnv):
    """Gymnasium's vectors, or EnvPool, as its users adapt them."""

    def __init__(self, task: Task, seed: int = 0, processes: int = 1) -> None:
        self.vector: Any
        if task.pool:
            import envpool

            self.vector = envpool.make_gymnasium(
                task.env, num_envs=task.count, seed=seed, num_threads=POOL_THREADS, **task.settings
            )
            space = self.vector.action_space
        else:
            mode = gymnasium.vector.AutoresetMode.SAME_STEP
            makers = [lambda: gymnasium.make(task.env)] * task.count
            kind = gymnasium.vector.AsyncVectorEnv if processes > 1 else gymnasium.vector.SyncVectorEnv
            self.vector = kind(makers, autoreset_mode=mode)
            space = self.vector.single_action_space
        self.num_envs, self.num_actions = task.count, int(space.shape[0])
        self.low, self.high, self.type = torch.tensor(space.low), torch.tensor(space.high), space.dtype
        self.max_episode_length, self.device, self.cfg = 1000, "cpu", {}
        self.episode_length_buf = torch.zeros(task.count, dtype=torch.long)
        self.obs = self._seen((self.vector.reset() if task.pool else self.vector.reset(seed=seed))[0])

    def _seen(self, raw: Any) -> TensorDict:
        groups = raw if isinstance(raw, dict) else {"state": raw}
        tensors = {name: torch.as_tensor(values, dtype=torch.float32) for name, values in groups.items()}
        return TensorDict(tensors, batch_size=[self.num_envs])

    def get_observations(self) -> TensorDict:
        return self.obs

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        sent = torch.clamp(actions, self.low, self.high).numpy().astype(self.type)
        raw, rewards, terminated, truncated, _ = self.vector.step(sent)
        self.obs = self._seen(raw)
        dones = torch.as_tensor(terminated | truncated)
        extras = {"time_outs": torch.as_tensor(truncated)}
        return self.obs, torch.as_tensor(rewards, dtype=torch.float32), dones.long(), extras


def settings(task: Task, normalize: bool) -> dict[str, Any]:
    network = {
        "class_name": "rsl_rl.models.MLPModel",
        "hidden_dims": list(task.hidden),
        "activation": task.activation,
        "obs_normalization": normalize,
    }
    density = {"class_name": "rsl_rl.modules.GaussianDistribution", "init_std": task.initial_std, "std_type": "log"}
    actor, critic = task.groups
    return {
        "num_steps_per_env": task.steps,
        "save_interval": 1_000_000,
        "obs_groups": {"actor": [actor], "critic": [critic]},
        "actor": {**network, "distribution_cfg": density},
        "critic": network,
        "algorithm": {
            "class_name": "rsl_rl.algorithms.PPO",
            "num_learning_epochs": EPOCHS,
            "num_mini_batches": MINIBATCHES,
            "learning_rate": LEARNING_RATE,
            "schedule": "fixed",
            "gamma": task.gamma,
            "lam": TRACE,
            "clip_param": CLIP,
            "entropy_coef": task.entropy_coef,
            "use_clipped_value_loss": False,
            "max_grad_norm": LARGEST_GRADIENT,
        },
        "multi_gpu": None,
    }


def measure_speed(options: argparse.Namespace) -> None:
    torch.set_num_threads(THREADS)
    task = TASKS[options.task]
    world = World(task, processes=options.processes)
    idle = (
        world if task.pool else World(task, processes=options.processes)
    )  # a pool of Go1 takes gigabytes: nobody holds two
    with redirect_stdout(sys.stderr):  # it introduces its networks, and standard output is for numbers
        learner = OnPolicyRunner(world, settings(task, options.normalize)).alg
    learner.train_mode()
    rng = np.random.default_rng(0)
    actions = torch.tensor(rng.uniform(-1, 1, (task.steps, task.count, world.num_actions)), dtype=torch.float32)

    def environment() -> None:
        for action in actions:
            idle.step(action)

    def collect() -> None:
        with torch.inference_mode():
            for _ in range(task.steps):
                obs, rewards, dones, extras = world.step(learner.act(world.obs))
                learner.process_env_step(obs, rewards, dones, extras)
            learner.compute_returns(world.obs)

    def rollout() -> None:
        collect()
        learner.storage.clear()

    def training() -> None:
        collect()
        learner.update()

    serve_phases("rsl", {"environment": environment, "rollout": rollout, "training": training}, options)


def measure_curve(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    task = task_of(options)
    world = World(task, seed=options.seed)
    with redirect_stdout(sys.stderr):
        runner = OnPolicyRunner(world, settings(task, normalize=True))
    learner = runner.alg
    learner.train_mode()

    def iterate() -> None:
        with torch.inference_mode():
            for _ in range(task.steps):
                obs, rewards, dones, extras = world.step(learner.act(world.obs))
                learner.process_env_step(obs, rewards, dones, extras)
            learner.compute_returns(world.obs)
        learner.update()

    def act(rows: Any) -> np.ndarray:
        groups = rows if isinstance(rows, dict) else {"state": rows}
        tensors = {name: torch.as_tensor(values, dtype=torch.float32) for name, values in groups.items()}
        policy = runner.get_inference_policy()
        with torch.inference_mode():
            actions = policy(TensorDict(tensors, batch_size=[len(next(iter(tensors.values())))]))
        learner.train_mode()
        return torch.clamp(actions, world.low, world.high).numpy()

    draw_curve("rsl", options, iterate, act)


def main() -> None:
    options = arguments(ppo=speed_options, ppo_curve=curve_options)
    {"ppo": measure_speed, "ppo_curve": measure_curve}[options.kind](options)


if __name__ == "__main__":
    main()
