"""SBX's SAC, which is Stable-Baselines3's loop around JAX: speed.

XLA's pool has as many threads as the process may use processors: that is how their number is set here.
"""

import argparse
import os

import torch
from _sac import HIDDEN, TASKS, WARMUP_STEPS, baselines_settings, speed_options
from _windows import THREADS, arguments, serve
from sbx import SAC
from stable_baselines3.common.env_util import make_vec_env


def measure_speed(options: argparse.Namespace) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])  # before JAX first counts them
    torch.set_num_threads(THREADS)
    envs = make_vec_env(TASKS[options.task], options.envs, seed=0)
    settings = baselines_settings(options.envs, WARMUP_STEPS, seed=0)
    model = SAC("MlpPolicy", envs, policy_kwargs={"net_arch": list(HIDDEN)}, **settings)
    model.learn(WARMUP_STEPS + 10 * options.envs, log_interval=None)

    def run(steps: int) -> None:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)

    serve("sbx", run, options)


def main() -> None:
    measure_speed(arguments(sac=speed_options))


if __name__ == "__main__":
    main()
