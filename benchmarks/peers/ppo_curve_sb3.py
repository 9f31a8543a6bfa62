"""A curve of Stable-Baselines3's PPO, with its VecNormalize for observations. As `ppo_sb3.py` otherwise."""

from typing import Any

import numpy as np
import torch
from _ppo_curve import arguments, draw_curve, task_of
from _ppo_windows import TRANSITIONS
from ppo_sb3 import make_model


def main() -> None:
    options = arguments()
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


if __name__ == "__main__":
    main()
