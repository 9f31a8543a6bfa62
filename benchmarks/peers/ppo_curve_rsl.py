"""A curve of rsl-rl-lib's PPO, with its empirical normalisation. As `ppo_rsl.py` otherwise."""

import sys
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import torch
from _ppo_curve import arguments, draw_curve, task_of
from ppo_rsl import World, settings
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict


def main() -> None:
    options = arguments()
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


if __name__ == "__main__":
    main()
