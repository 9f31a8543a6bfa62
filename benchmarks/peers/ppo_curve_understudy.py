"""Our curve, as `ppo_understudy.py` with running normalisers."""

from typing import Any

import numpy as np
import torch
from _ppo_curve import arguments, draw_curve, task_of
from ppo_understudy import make_learner, make_vector_env

from understudy.run.allocator import keep_freed_memory
from understudy.sources.rollout import RolloutSource


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    keep_freed_memory()
    task = task_of(options)
    world = make_vector_env(task)
    learner = make_learner(task, world, True, "none", seed=options.seed)
    source = RolloutSource.build(world, learner.policy, task.steps, options.seed)

    def iterate() -> None:
        learner.update(source.next(learner.policy))

    def act(rows: Any) -> np.ndarray:
        groups = rows if isinstance(rows, dict) else {"state": rows}
        obs = {name: torch.as_tensor(values, dtype=torch.float32) for name, values in groups.items()}
        return learner.policy.act(obs, (), greedy=True)[0].numpy()

    draw_curve("understudy", options, iterate, act)


if __name__ == "__main__":
    main()
