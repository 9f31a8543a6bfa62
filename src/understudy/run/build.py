"""From a config to live objects. Everything that can be wrong is found here, before the first step."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from understudy.algorithms import find_algorithm
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Algorithm, Blueprint, Metrics
from understudy.core.spec import Spec
from understudy.core.state import Static, capture
from understudy.data.dataset import Dataset
from understudy.data.recipes import Scripted
from understudy.data.rewards import RewardTransform, fit_rewards
from understudy.data.scores import reference
from understudy.envs.controllers import find_controller
from understudy.envs.gym import env_spec, make_env
from understudy.nn.actor import Actor
from understudy.run.allocator import keep_freed_memory
from understudy.run.compiler import Update, compile_update
from understudy.run.config import RunConfig
from understudy.run.datasets import resolve_dataset
from understudy.run.progress import SILENT, Reporter
from understudy.sources.offline import OfflineSource


@final
@dataclass
class Learner:
    """What moves during a run; its inventory is what a checkpoint holds."""

    algorithm: Algorithm
    source: OfflineSource
    step: Static[Update]
    """The algorithm's update, compiled if the run asks for it."""
    dataset: Static[Dataset]
    reward: Static[RewardTransform]

    def update(self) -> Metrics:
        """The whole of training, in two lines."""
        data = self.source.next(self.algorithm.policy)
        return self.step(data)

    @property
    def policy(self) -> Actor:
        """The policy as a deployable network."""
        policy = self.algorithm.policy
        assert isinstance(policy, Actor)
        return policy


def build_learner(config: RunConfig, reporter: Reporter = SILENT) -> Learner:
    """Dataset, source and algorithm of a run."""
    device = check_config(config)
    keep_freed_memory()
    dataset = resolve_dataset(config.data, config.env.id, reporter)
    torch.set_num_threads(config.threads)
    check_env_fits(config.env.id, dataset)
    reward = fit_rewards(config.data.reward, dataset)
    blueprint = Blueprint(
        dataset.spec,
        dataset.moments() if config.data.normalize_observations else {},
        config.steps,
        config.seed,
        device,
    )
    algorithm: Algorithm = find_algorithm(config.algo.model_dump()["name"]).build(config.algo, blueprint)
    source = OfflineSource.build(
        dataset.with_rewards(reward), algorithm.demand, config.source.batch_size, config.seed, device
    )
    step = compile_update(algorithm.update, device) if config.compile else algorithm.update
    learner = Learner(algorithm, source, step, dataset, reward)
    capture(learner)  # an incomplete inventory must fail now, not at the first checkpoint
    return learner


def check_config(config: RunConfig) -> torch.device:
    """What can be checked without touching data: device, environment, reference score, where the data lies."""
    if isinstance(config.env.reference, str):
        reference(config.env.reference)
    spec_of(config.env.id)
    recipe = config.data.recipe
    if recipe is None and not Path(config.data.path).exists():
        raise DataError(f"dataset '{config.data.path}'", "no such file")
    if recipe is not None:
        spec_of(recipe.env)
        if any(isinstance(behaviour, Scripted) for behaviour in recipe.behaviours):
            find_controller(recipe.env)
    return pick_device(config.device)


def spec_of(env_id: str) -> Spec:
    """What a registered environment emits and accepts, or an error if it cannot be learned from."""
    env = make_env(env_id)
    try:
        return env_spec(env, env_id)
    finally:
        env.close()


def check_env_fits(env_id: str, dataset: Dataset) -> None:
    """The environment emits and accepts what the data holds."""
    spec = spec_of(env_id)
    same_groups = {name: group.shape for name, group in spec.observation.items()} == {
        name: group.shape for name, group in dataset.spec.observation.items()
    }
    same_bounds = (spec.action.low, spec.action.high) == (dataset.spec.action.low, dataset.spec.action.high)
    if not same_groups or not same_bounds:
        raise DataError(
            f"dataset '{dataset.name}'",
            f"does not fit environment '{env_id}'",
            got=dataset.spec.describe(),
            expected=spec.describe(),
        )


def pick_device(name: str) -> torch.device:
    """The device that was asked for, or an error; never another one."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        raise ConfigError("device", f"'{name}' is not available on this machine", do="Use device=cpu.")
    return torch.device(name)


def sealed_data(config: RunConfig, dataset: Dataset) -> RunConfig:
    """The config with the dataset's fingerprint written in, and its path made independent of the folder."""
    path = str(Path(config.data.path).resolve()) if config.data.path else ""
    recipe = config.data.recipe.with_absolute_runs() if config.data.recipe is not None else None
    data = config.data.model_copy(update={"fingerprint": dataset.fingerprint, "path": path, "recipe": recipe})
    return config.model_copy(update={"data": data})
