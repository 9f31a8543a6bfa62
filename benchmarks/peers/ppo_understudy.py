"""Ourselves: PPO in the loop's two lines."""

import torch
from _ppo_windows import (
    CLIP,
    EPOCHS,
    LARGEST_GRADIENT,
    LEARNING_RATE,
    MINIBATCHES,
    POOL_THREADS,
    TASKS,
    THREADS,
    TRACE,
    Task,
    arguments,
    serve,
)

from understudy.algorithms import ppo
from understudy.core.protocols import Blueprint
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.envpool_adapter import EnvPoolVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.run.allocator import keep_freed_memory
from understudy.sources.rollout import RolloutSource

MEMORY_UNITS = 64


def make_vector_env(task: Task, processes: int = 1) -> VectorEnv:
    if task.pool:
        return EnvPoolVectorEnv(task.env, task.count, threads=POOL_THREADS, settings=task.settings)
    return LocalVectorEnv(task.env, task.count, workers=processes)


def make_learner(task: Task, world: VectorEnv, normalize: bool, memory: str, seed: int = 0) -> ppo.PPO:
    trunk = {"hidden": task.hidden, "activation": task.activation}
    role = {"trunk": trunk, "normalize": normalize, "memory": {"kind": memory, "units": MEMORY_UNITS}}
    actor, critic = ((group,) if len(world.spec.observation) > 1 else () for group in task.groups)
    settings = {
        "actor": {**role, "sees": actor, "distribution": {"initial_std": task.initial_std}},
        "critic": {**role, "sees": critic},
        "gamma": task.gamma,
        "entropy_coef": task.entropy_coef,
        "gae_lambda": TRACE,
        "clip": CLIP,
        "epochs": EPOCHS,
        "minibatches": MINIBATCHES,
        "learning_rate": LEARNING_RATE,
        "schedule": "constant",
        "max_grad_norm": LARGEST_GRADIENT,
    }
    blueprint = Blueprint(world.spec, {}, 1_000_000, seed, torch.device("cpu"), environments=task.count)
    return ppo.build(ppo.Config.parse(settings), blueprint)


def main() -> None:
    options = arguments()
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    task = TASKS[options.task]
    world = make_vector_env(task, options.processes)
    idle = (
        world if task.pool else make_vector_env(task, options.processes)
    )  # a pool of Go1 takes gigabytes: nobody holds two
    learner = make_learner(task, world, options.normalize, options.memory)
    source = RolloutSource.build(world, learner.policy, task.steps, 0)
    if idle is not world:
        idle.reset(0)
    rng = torch.Generator().manual_seed(0)
    actions = (2 * torch.rand(task.steps, task.count, world.spec.box.size, generator=rng) - 1).unbind(0)

    def environment() -> None:
        for action in actions:
            idle.step(action)

    def rollout() -> None:
        source.next(learner.policy)

    def training() -> None:
        learner.update(source.next(learner.policy))

    serve("understudy", {"environment": environment, "rollout": rollout, "training": training}, options)


if __name__ == "__main__":
    main()
