"""A run that learns from data: batches of a fixed dataset, watched by a monitor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor

from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.machine_memory import check_room
from understudy.core.protocols import Algorithm, Blueprint, Concerned, Metrics, Moments
from understudy.core.state import Static, capture
from understudy.core.wording import counted
from understudy.data.corruption import corruption_facts
from understudy.data.dataset import Dataset
from understudy.data.rewards import RewardTransform, fit_rewards
from understudy.data.stores.store import is_store, store_recipe
from understudy.data.transforms import Transforms, column_numbers
from understudy.envs.facts import can_terminate
from understudy.nn.committee import Memoryless
from understudy.nn.normalizer import unit_moments
from understudy.run.allocator import keep_freed_memory
from understudy.run.checkpoint import Checkpoint
from understudy.run.compiler import Update, compile_update
from understudy.run.config import OfflineSettings, RunConfig
from understudy.run.environments import check_fits, spec_of
from understudy.run.loading import Prepared, resolve_dataset
from understudy.run.monitor import Monitor
from understudy.run.outline import build_algorithm
from understudy.run.progress import SILENT, Reporter
from understudy.run.validation import validation_error
from understudy.sources.importance.weighed import WeighedSource
from understudy.sources.offline import OfflineSource


@final
@dataclass
class OfflineLearner:
    """What moves while data are learned from; its inventory is what a checkpoint holds."""

    algorithm: Algorithm
    source: OfflineSource | WeighedSource
    config: Static[RunConfig]
    step: Static[Update]
    """The algorithm's update, compiled if the run asks for it."""
    dataset: Static[Dataset]
    validation: Static[Dataset | None]
    """Episodes held out, if any."""
    reward: Static[RewardTransform]
    monitor: Static[Monitor]

    @property
    def prepared(self) -> Prepared:
        """Its data, as another learner could use them."""
        return Prepared(self.dataset, self.validation)

    @property
    def policy(self) -> Memoryless:
        policy = self.algorithm.policy
        assert isinstance(policy, Memoryless)
        return policy

    @property
    def exact(self) -> bool:
        return True

    def update(self) -> Metrics:
        """The whole of training, in two lines."""
        data = self.source.next(self.algorithm.policy)
        return self.step(data)

    def metrics(self) -> Metrics:
        weighed = self.source.statistics() if isinstance(self.source, WeighedSource) else {}
        return {**self.monitor.metrics(self.algorithm), **weighed}

    def warning(self, values: dict[str, float]) -> str:
        """The critics believe in more than any return can be."""
        if not values.get("alarm/diverging"):
            return ""
        return (
            f"|Q| reached {values['value/q_largest']:.3g}, and no return can be beyond {self.monitor.bound:.3g} "
            "(largest reward/(1 − γ)): the critics diverge. Lower the learning rates, or choose a more conservative "
            "setting."
        )

    def shared_env(self) -> None:
        return None

    def eval_metrics(self) -> dict[str, float]:
        if self.validation is None:
            return {}
        return {"eval/validation_error": validation_error(self.policy, self.validation)}

    def origin(self) -> dict[str, Any]:
        """What meta.json says of the data, the fitted reward transform included."""
        path, dataset = self.config.logged.path, self.dataset
        told = corruption_facts(store_recipe(Path(path))) if path and is_store(Path(path)) else {}
        return {
            "dataset": {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "steps": dataset.steps,
                "episodes": dataset.episodes,
                "return_mean": float(dataset.returns().mean()),
                "reward_scale": self.reward.scale,
                "reward_shift": self.reward.shift,
                **told,
            }
        }

    def transforms(self) -> dict[str, Any]:
        """What was done to the data, in words and with the numbers that were fitted, so that others can do the same."""
        words = self.config.logged.model_dump(mode="json", include=set(Transforms.model_fields))
        return {**words, "reward_scale": self.reward.scale, "reward_shift": self.reward.shift}

    def close(self) -> None:
        """There is nothing to let go of."""


def build_offline(
    config: RunConfig,
    device: torch.device,
    reporter: Reporter = SILENT,
    prepared: Prepared | None = None,
    checkpoint: Checkpoint | None = None,
) -> OfflineLearner:
    """Dataset, source and algorithm of a run. `prepared`: its data, if they are in memory already; `checkpoint`: what
    it goes on from, if it does."""
    keep_freed_memory()
    settings = config.logged
    prepared = prepared or resolve_dataset(settings, config.env.id, reporter)
    dataset = prepared.train
    torch.set_num_threads(config.threads)
    check_fits(dataset.spec, dataset.name, spec_of(config.env), config.env.id)
    _warn_of_terminals(dataset, config, reporter)
    reward = fit_rewards(settings.reward, dataset)
    blueprint = Blueprint(dataset.spec, _moments(settings, dataset), config.updates, config.seed, device)
    algorithm = cast(Algorithm, build_algorithm(config, blueprint, checkpoint))
    source = _source(config, dataset.with_rewards(reward), algorithm, device)
    if isinstance(algorithm, Concerned):
        for warning in algorithm.concerns(reward(some_rewards(dataset))):
            reporter.say(warning)
    step = compile_update(algorithm.update, device, reporter.say) if config.compile is True else algorithm.update
    monitor = Monitor.over(source, reward, algorithm.demand.gamma, config.seed)
    learner = OfflineLearner(algorithm, source, config, step, dataset, prepared.validation, reward, monitor)
    capture(learner)  # an incomplete inventory must fail now, not at the first checkpoint
    return learner


def some_rewards(dataset: Dataset, most: int = 1 << 24) -> Tensor:
    """All rewards as recorded, or every second, third, … of more than `most`: copies of very many take too much."""
    stride = -(-dataset.steps // most)
    blocks = dataset.blocks(dataset.rewards.cpu().numpy())
    return torch.cat([torch.from_numpy(block[::stride].copy()) for block in blocks])


def _source(
    config: RunConfig, dataset: Dataset, algorithm: Algorithm, device: torch.device
) -> OfflineSource | WeighedSource:
    """Where batches come from, with a weight for every row if the run asks for them."""
    settings, demand = config.source, algorithm.demand
    assert isinstance(settings, OfflineSettings)
    batch = f"a batch of {settings.batch_size:,} rows"
    check_room("source.batch_size", batch, settings.batch_size * dataset.row_bytes, "Use a smaller one.")
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
        hidden=config.logged.hide_columns,
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


def _warn_of_terminals(dataset: Dataset, config: RunConfig, reporter: Reporter) -> None:
    """Time limits stored as terminals teach that the future is worth nothing; here that can be known."""
    ended, env_id = int(dataset.index.terminated.sum()), config.env.id
    if ended and can_terminate(env_id) is False:
        command = f"understudy dataset check {config.logged.path or 'DATA'} --env {env_id}"
        reporter.say(
            f"{dataset.name}: {counted(ended, 'episode')} of {dataset.episodes} terminated, and {env_id} never does. "
            f"Time limits stored as terminals? See: {command}"
        )
