"""Ourselves: the loop's two lines, on the same problems as the peers. Offline algorithms have their defaults."""

import argparse
from typing import Any

import _sac
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
from _windows import ACTION, BATCH, EPISODE, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, offline_options, serve

from understudy import Box, Dataset, Episode
from understudy.algorithms import cql, iql, ppo, redq, sac, td3bc
from understudy.core.protocols import BuildContext
from understudy.data.experience import LoggedExperience
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.envpool_adapter import EnvPoolVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.run.allocator import keep_freed_memory
from understudy.run.compiler import compile_update
from understudy.sources import SourceInputs, offline, replay
from understudy.sources.rollout import RolloutSource

HORIZON = 1_000_000
MEMORY_UNITS = 64
OFFLINE = {"iql": iql, "cql": cql, "td3bc": td3bc, "redq": redq}


def million_rows() -> Dataset:
    rng = np.random.default_rng(0)
    episodes = (
        Episode(
            {"state": rng.standard_normal((EPISODE + 1, OBSERVATION), np.float32)},
            rng.uniform(-1, 1, (EPISODE, ACTION)).astype(np.float32),
            rng.standard_normal(EPISODE, np.float32),
            terminated=False,
            truncated=True,
        )
        for _ in range(ROWS // EPISODE)
    )
    return Dataset.from_episodes(episodes, Box((-1.0,) * ACTION, (1.0,) * ACTION))


def measure_offline(options: argparse.Namespace) -> None:
    """An algorithm with its own settings and networks of the asked shape."""
    module: Any = OFFLINE[options.kind]
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    data = LoggedExperience.of(million_rows())
    network = {"hidden": (HIDDEN,) * options.layers}
    config = module.Config.parse({"actor": network, "critic": network})
    algorithm = module.build(config, BuildContext.over(data, HORIZON))
    source = offline.build(offline.Config(batch_size=BATCH), SourceInputs.over(data, algorithm))
    update = compile_update(algorithm, data.device) if options.compile else algorithm.update

    def run(updates: int) -> None:
        for _ in range(updates):
            update(source.next(algorithm.policy))

    serve("understudy", run, options)


def make_vector_env(task: Task, processes: int = 1) -> VectorEnv:
    if task.pool:
        return EnvPoolVectorEnv(task.env, task.count, threads=POOL_THREADS, settings=task.settings)
    return LocalVectorEnv(task.env, task.count, workers=processes)


def make_learner(task: Task, world: VectorEnv, normalize: bool, memory: str, seed: int = 0) -> ppo.PPO:
    trunk = {"hidden": task.hidden, "activation": task.activation}
    role = {**trunk, "normalize": normalize, "memory": {"kind": memory, "units": MEMORY_UNITS}}
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
    context = BuildContext(world.spec, HORIZON, seed, torch.device("cpu"), num_envs=task.count)
    return ppo.build(ppo.Config.parse(settings), context)


def measure_speed(options: argparse.Namespace) -> None:
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

    serve_phases("understudy", {"environment": environment, "rollout": rollout, "training": training}, options)


def measure_curve(options: argparse.Namespace) -> None:
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


def measure_sac(options: argparse.Namespace) -> None:
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    world = LocalVectorEnv(_sac.TASKS[options.task], options.envs)
    network = {"hidden": _sac.HIDDEN, "normalize": False}
    settings = {
        "actor": network,
        "critic": network,
        "gamma": _sac.GAMMA,
        "polyak": _sac.POLYAK,
        "actor_learning_rate": _sac.LEARNING_RATE,
        "critic_learning_rate": _sac.LEARNING_RATE,
        "entropy_learning_rate": _sac.LEARNING_RATE,
    }
    device = torch.device("cpu")
    context = BuildContext(world.spec, HORIZON, 0, device, num_envs=options.envs)
    learner = sac.build(sac.Config.parse(settings), context)
    steps = {"num_envs": options.envs, "learning_starts": _sac.WARMUP_STEPS, "buffer_size": _sac.BUFFER}
    inputs = SourceInputs(world.spec, 0, device, learner.demand, learner.policy, envs=(world,))
    source = replay.build(replay.Config(batch_size=_sac.BATCH, **steps), inputs)
    update = compile_update(learner, device) if options.compile else learner.update

    def run(updates: int) -> None:
        for _ in range(updates):
            while (data := source.next(learner.policy)) is None:
                pass
            source.feedback(update(data).feedback)

    serve("understudy", run, options)


def main() -> None:
    offline = dict.fromkeys(OFFLINE, offline_options)
    options = arguments(**offline, ppo=speed_options, ppo_curve=curve_options, sac=_sac.speed_options)
    others = {"ppo": measure_speed, "ppo_curve": measure_curve, "sac": measure_sac}
    others.get(options.kind, measure_offline)(options)


if __name__ == "__main__":
    main()
