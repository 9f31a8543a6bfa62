"""From a config to live objects. Everything that can be wrong is found here, before the first step."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from understudy.algorithms import find_algorithm
from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.protocols import Algorithm, Blueprint, Concerned, Metrics, Moments
from understudy.core.spec import Box, Spec
from understudy.core.state import Static, capture
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.formats.readers import check_origin
from understudy.data.rewards import RewardTransform, fit_rewards
from understudy.data.scores import reference
from understudy.data.transforms import Transforms, column_numbers
from understudy.envs.facts import can_terminate
from understudy.envs.gym import env_spec, make_env
from understudy.nn.committee import Deployed
from understudy.nn.normalizer import unit_moments
from understudy.run.allocator import keep_freed_memory
from understudy.run.compiler import Update, compile_update
from understudy.run.config import RunConfig
from understudy.run.dataset.loading import Prepared, resolve_dataset
from understudy.run.levels import resolve_recipe
from understudy.run.progress import SILENT, Reporter
from understudy.sources.collect import recipe_name, recipe_spec
from understudy.sources.importance.weighed import WeighedSource
from understudy.sources.offline import OfflineSource


@final
@dataclass
class Learner:
    """What moves during a run; its inventory is what a checkpoint holds."""

    algorithm: Algorithm
    source: OfflineSource | WeighedSource
    step: Static[Update]
    """The algorithm's update, compiled if the run asks for it."""
    dataset: Static[Dataset]
    validation: Static[Dataset | None]
    """Episodes held out, if any."""
    reward: Static[RewardTransform]

    @property
    def prepared(self) -> Prepared:
        """Its data, as another learner could use them."""
        return Prepared(self.dataset, self.validation)

    def update(self) -> Metrics:
        """The whole of training, in two lines."""
        data = self.source.next(self.algorithm.policy)
        return self.step(data)

    @property
    def policy(self) -> Deployed:
        """The policy as a deployable network."""
        policy = self.algorithm.policy
        assert isinstance(policy, Deployed)
        return policy


def build_learner(config: RunConfig, reporter: Reporter = SILENT, prepared: Prepared | None = None) -> Learner:
    """Dataset, source and algorithm of a run. `prepared`: its data, if they are in memory already."""
    device = check_config(config)
    keep_freed_memory()
    prepared = prepared or resolve_dataset(config.data, config.env.id, reporter)
    dataset = prepared.train
    torch.set_num_threads(config.threads)
    check_fits(dataset.spec, dataset.name, spec_of(config.env.id), config.env.id)
    _warn_of_terminals(dataset, config, reporter)
    reward = fit_rewards(config.data.reward, dataset)
    blueprint = Blueprint(
        dataset.spec,
        _moments(config.data, dataset),
        config.steps,
        config.seed,
        device,
    )
    algorithm: Algorithm = find_algorithm(config.algorithm).build(config.algo, blueprint)
    source = _source(config, dataset.with_rewards(reward), algorithm, device)
    if isinstance(algorithm, Concerned):
        for concern in algorithm.concerns(reward(dataset.rewards)):
            reporter.say(concern)
    step = compile_update(algorithm.update, device) if config.compile else algorithm.update
    learner = Learner(algorithm, source, step, dataset, prepared.validation, reward)
    capture(learner)  # an incomplete inventory must fail now, not at the first checkpoint
    return learner


def _source(
    config: RunConfig, dataset: Dataset, algorithm: Algorithm, device: torch.device
) -> OfflineSource | WeighedSource:
    """Where batches come from, with a weight for every row if the run asks for them."""
    settings, demand = config.source, algorithm.demand
    common = dataset, demand, settings.batch_size, config.seed, device
    weights, replacement = settings.weights, settings.replacement
    if settings.importance.provider == "none":
        return OfflineSource.build(*common, weights=weights, replacement=replacement)
    if not demand.weighed:
        raise ConfigError(
            "source.importance.provider",
            f"{config.algorithm} does not use importance weights",
            got=settings.importance.provider,
            do="Use iact, or leave it at none.",
        )
    return WeighedSource.build(
        *common,
        settings=settings.importance,
        weights=weights,
        replacement=replacement,
        hidden=config.data.hide_columns,
    )


def _moments(settings: Transforms, dataset: Dataset) -> dict[str, Moments]:
    """What normalisers are made of. A hidden column has infinite spread: whatever it says, networks see 0."""
    moments = dataset.moments() if settings.normalize_observations else {}
    for name, numbers in settings.hide_columns.items():
        if name not in dataset.spec.observation or len(dataset.spec.observation[name].shape) != 1:
            raise ConfigError(
                "data.hide_columns", f"no vector group '{name}'", do=did_you_mean(name, dataset.spec.observation)
            )
        (size,) = dataset.spec.observation[name].shape
        known = moments.get(name, unit_moments((size,)))
        std = known.std.clone()
        if beyond := [number for number in numbers if not -size <= number < size]:
            raise ConfigError(
                "data.hide_columns", f"no such column of '{name}'", got=beyond[0], expected=f"{-size} to {size - 1}"
            )
        std[column_numbers(numbers, size, "data.hide_columns")] = torch.inf
        moments[name] = Moments(known.mean, std)
    return moments


def check_config(config: RunConfig) -> torch.device:
    """What can be checked without touching data: device, environment, reference score, where the data lies."""
    if isinstance(config.env.reference, str):
        reference(config.env.reference)
    spec = spec_of(config.env.id)
    if not isinstance(spec.action, getattr(config.algo, "ACTIONS", (Box,))):
        raise ConfigError(
            f"environment '{config.env.id}'",
            f"its actions are not for {config.algorithm}",
            got=spec.action.describe(),
        )
    recipe = config.data.recipe
    if recipe is None:
        check_origin(config.data.path)
    elif not config.data.mends():
        check_fits(recipe_spec(recipe), recipe_name(recipe), spec, config.env.id)
    return pick_device(config.device)


def spec_of(env_id: str) -> Spec:
    """What a registered environment emits and accepts, or an error if it cannot be learned from."""
    env = make_env(env_id)
    try:
        return env_spec(env, env_id)
    finally:
        env.close()


def check_fits(data: Spec, name: str, env: Spec, env_id: str) -> None:
    """The environment emits and accepts what the data holds."""
    if not env.fits(data):
        raise DataError(
            f"dataset '{name}'", f"does not fit environment '{env_id}'", got=data.describe(), expected=env.describe()
        )


def _warn_of_terminals(dataset: Dataset, config: RunConfig, reporter: Reporter) -> None:
    """Time limits stored as terminals teach that the future is worth nothing; here that can be known."""
    ended, env_id = int(dataset.index.terminated.sum()), config.env.id
    if ended and can_terminate(env_id) is False:
        look = f"understudy dataset check {config.data.path or 'DATA'} --env {env_id}"
        reporter.say(
            f"{dataset.name}: {counted(ended, 'episode')} of {dataset.episodes} terminated, and {env_id} never does. "
            f"Time limits stored as terminals? See: {look}"
        )


def pick_device(name: str) -> torch.device:
    """The device that was asked for, or an error; never another one."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        raise ConfigError("device", f"'{name}' is not available on this machine", do="Use device=cpu.")
    return torch.device(name)


def settled_data(config: RunConfig) -> RunConfig:
    """The config with checkpoints for levels and with paths independent of the folder: what it means from now on."""
    path, recipe = config.data.path, config.data.recipe
    if path and Path(path).exists():
        path = str(Path(path).resolve())
    changes = {"path": path, "recipe": None if recipe is None else resolve_recipe(recipe)}
    origin = str(Path(config.init_from).resolve()) if config.init_from else ""
    stages = tuple(settled_data(stage) for stage in config.stages)
    data = config.data.model_copy(update=changes)
    return config.model_copy(update={"data": data, "init_from": origin, "stages": stages})
