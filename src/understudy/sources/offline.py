"""Batches drawn from a fixed dataset: uniformly, by weight, by how wrong one was about rows, or each once per epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.batch import IMPORTANCE, Transitions
from understudy.core.errors import ConfigError
from understudy.core.machine_memory import check_room
from understudy.core.protocols import MAIN, Demand, Metrics, Policy, SourceNeeds
from understudy.core.ranks import ALL, Share
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.data.experience import LoggedExperience
from understudy.sources import SourceInputs
from understudy.sources.importance.row_weights import RowWeights, row_weights
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.sampling.blocks import BlockSampler, batches_at_once
from understudy.sources.sampling.draws import BY_WEIGHT, choose_draw, read_weights
from understudy.sources.sampling.priorities import Priorities, PrioritySampler, PrioritySettings, check_told

YIELDS = Transitions
INTERVALS: dict[str, int] = {}


class Config(Settings):
    """Batches from a fixed dataset."""

    kind: Literal["offline"] = "offline"
    """`offline`: batches drawn from a fixed dataset."""
    batch_size: int = Field(256, ge=1)
    """Rows per gradient step."""
    weights: str = ""
    """A further column of the dataset: rows are drawn in proportion to it. Empty: every row is as likely."""
    replacement: bool = True
    """False: every row exactly once per epoch, in an order of the epoch's own."""
    priority: PrioritySettings = PrioritySettings()
    """Draw rows oftener that values were wrong about: see docs/priorities.md."""
    importance: ImportanceSettings = ImportanceSettings()
    """How much each row counts, for algorithms that ask: see docs/importance.md."""

    @model_validator(mode="after")
    def _weights_need_replacement(self) -> Self:
        if self.weights and not self.replacement:
            raise ValueError(f"{BY_WEIGHT}. Leave out one of weights and replacement=false")
        if self.priority.exponent and (self.weights or not self.replacement):
            other = f"weights={self.weights}" if self.weights else "replacement=false"
            raise ValueError(f"rows are drawn by priority.exponent or by {other}, not by both. Leave out one of them")
        return self


@final
@dataclass
class OfflineSource:
    data: Static[LoggedExperience]
    sampler: BlockSampler[Transitions] | PrioritySampler
    weighing: tuple[RowWeights, ...]
    """How much rows count, where the run asks for it."""

    @property
    def exact(self) -> bool:
        return True

    def next(self, policy: Policy) -> Transitions:
        """The next batch; rows that are weighed have `extra["importance"]` [B] as of now."""
        for weights in self.weighing:
            weights.refresh(policy, self.sampler.drawn)
        batch = self.sampler.next()
        for weights in self.weighing:
            batch = replace(batch, extra={**batch.extra, IMPORTANCE: weights.of(batch.extra["row"])})
        return batch

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        """Rows may be drawn by what is thought of them."""
        if isinstance(self.sampler, PrioritySampler):
            self.sampler.learn(rows)

    def envs_moved(self) -> None:
        """There are none."""

    def counters(self) -> dict[str, int]:
        return {}

    def metrics(self) -> Metrics:
        told = {name: value for weights in self.weighing for name, value in weights.metrics().items()}
        if isinstance(self.sampler, PrioritySampler):
            told |= self.sampler.priorities.metrics(self.sampler.drawn)
        return told

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        """There is nothing to let go of."""


def needs(config: Config) -> SourceNeeds:
    return SourceNeeds(data=(MAIN,), slices=True)


def build(config: Config, inputs: SourceInputs) -> OfflineSource:
    data, demand, importance = inputs.data[MAIN], inputs.demand, config.importance
    check_batch(config.batch_size, data)
    check_weights(data, demand)
    check_told(config.priority, demand)
    if importance.provider == "none":
        return OfflineSource(data, choose_sampler(config, data, demand, inputs.seed, inputs.share), ())
    if not demand.weighed:
        raise ConfigError(
            "source.importance.provider",
            "this algorithm does not use importance weights",
            got=importance.provider,
            do="Use iact, or leave it at none.",
        )
    columns = tuple(name for name in demand.columns if name not in (IMPORTANCE, "row"))
    asked = replace(demand, columns=(*columns, "row"))
    weights = row_weights(data, demand, importance, config.batch_size, inputs.seed)
    return OfflineSource(data, choose_sampler(config, data, asked, inputs.seed, inputs.share), (weights,))


def choose_sampler(
    config: Config, data: LoggedExperience, demand: Demand, seed: int, share: Share = ALL
) -> BlockSampler[Transitions] | PrioritySampler:
    """Batches of `data` as the settings say."""
    if config.priority.exponent:
        priorities = Priorities.over(config.priority, data.steps)
        priorities.admit(np.arange(data.steps), np.ones(data.steps, bool))
        return PrioritySampler(lambda rows: data.rows(rows, demand), config.batch_size, seed, priorities, share)
    return transition_sampler(config, data, demand, seed, share)


def transition_sampler(
    config: Config,
    data: LoggedExperience,
    demand: Demand,
    seed: int,
    share: Share = ALL,
    *,
    among: Tensor | None = None,
) -> BlockSampler[Transitions]:
    """Batches, or this process's share of them, whose rows nobody's opinion decides; of all steps, or of the steps
    `among` [count], of which some may stand there more than once."""
    batches = batches_at_once(config.batch_size * data.dataset.row_bytes)
    size = batches * config.batch_size
    draw = choose_draw(data.dataset, size, seed, weights=config.weights, replacement=config.replacement, among=among)

    def gather(number: int) -> list[Transitions]:
        drawn = draw.indices(number)
        rows = share.of((drawn if among is None else among.index_select(0, drawn)).view(batches, -1), 1)
        return data.rows(rows.flatten(), demand).split(rows.shape[1])

    return BlockSampler(gather, batches)


def check_weights(data: LoggedExperience, demand: Demand) -> None:
    """A column by which rows count can serve as that."""
    if demand.weights:
        read_weights(data.dataset, demand.weights)


def check_batch(rows: int, data: LoggedExperience) -> None:
    check_room("source.batch_size", f"a batch of {rows:,} rows", rows * data.dataset.row_bytes, "Use a smaller one.")
