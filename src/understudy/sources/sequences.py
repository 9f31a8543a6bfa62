"""Batches of sequences for learners with a memory.

episode      s0 s1 s2 s3 s4 |                 a sequence never leaves its episode
length 4,          s2 s3 s4 (s4)              what is missing at the end repeats the last step …
from s2      valid  1  1  1  0                … and is marked; `first` marks s0, where a memory starts anew
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.batch import Sequences
from understudy.core.protocols import MAIN, Metrics, Policy, SourceNeeds
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.data.experience import LoggedExperience
from understudy.sources import SourceInputs
from understudy.sources.offline import check_batch, check_weights
from understudy.sources.sampling.blocks import BlockSampler, batches_at_once
from understudy.sources.sampling.draws import BY_WEIGHT, choose_draw

YIELDS = Sequences
INTERVALS: dict[str, int] = {}


class Config(Settings):
    """Stretches of a dataset's episodes."""

    kind: Literal["sequences"] = "sequences"
    """`sequences`: stretches of the episodes of a fixed dataset."""
    batch_size: int = Field(32, ge=1)
    """Sequences per gradient step."""
    length: int = Field(32, ge=1)
    """Steps of each."""
    starts: Literal["step", "episode"] = "step"
    """Where sequences may begin: at any step, or where episodes do."""
    weights: str = ""
    """A further column of the dataset: sequences are drawn in proportion to the weight of their first step."""
    replacement: bool = True
    """False: every start exactly once per epoch, in an order of the epoch's own."""

    @model_validator(mode="after")
    def _weights_need_replacement(self) -> Self:
        if self.weights and not self.replacement:
            raise ValueError(f"{BY_WEIGHT}. Leave out one of weights and replacement=false")
        return self


@final
@dataclass
class SequenceSource:
    data: Static[LoggedExperience]
    sampler: BlockSampler[Sequences]

    @property
    def exact(self) -> bool:
        return True

    def next(self, policy: Policy) -> Sequences:
        """The next batch; what is offline does not depend on who is learning."""
        return self.sampler.next()

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        """Sequences are drawn alike, whatever is thought of them."""

    def envs_moved(self) -> None:
        """There are none."""

    def counters(self) -> dict[str, int]:
        return {}

    def metrics(self) -> Metrics:
        return {}

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        """There is nothing to let go of."""


def needs(config: Config) -> SourceNeeds:
    return SourceNeeds(data=(MAIN,))


def build(config: Config, inputs: SourceInputs) -> SequenceSource:
    data, rows = inputs.data[MAIN], config.batch_size * config.length
    check_batch(rows, data)
    check_weights(data, inputs.demand)
    among = torch.from_numpy(data.dataset.index.starts) if config.starts == "episode" else None
    batches = batches_at_once(rows * data.dataset.row_bytes)
    draw = choose_draw(
        data.dataset,
        batches * config.batch_size,
        inputs.seed,
        weights=config.weights,
        replacement=config.replacement,
        among=among,
    )

    def gather(number: int) -> list[Sequences]:
        chosen = draw.indices(number)
        start = chosen if among is None else among.index_select(0, chosen)
        return data.windows(start, config.length, inputs.demand).split(config.batch_size)

    return SequenceSource(data, BlockSampler(gather, batches))
