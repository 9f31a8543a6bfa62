"""Rows that a learner was wrong about are drawn oftener, and count less each time: prioritised sampling.

Schaul, Quan, Antonoglou and Silver 2016, *Prioritized Experience Replay*, arXiv:1511.05952, in its proportional form:

    p_i  = (|δ_i| + ε)^α; of a new row the largest so far       → priority
    P(i) = p_i / Σ_k p_k, a row of each of B equal parts        → sources.sampling.sum_tree.SumTree.draw
    w_i  = (N·P(i))^−β / max over the batch                     → sample_weights

δ is the temporal difference when a row was last learned from. Batches carry w as the column `sample_weight`: with β = 1
the losses of values are, on average, those of rows drawn alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.errors import ConfigError
from understudy.core.protocols import PRIORITY, Demand, Metrics
from understudy.core.ranks import ALL, Share
from understudy.core.rng import stream
from understudy.core.schedule import Schedule, ScheduleKind
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.data.replay_ring import ReplayRing
from understudy.sources.sampling.sum_tree import SumTree

Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]


class CorrectionSchedule(Schedule):
    """β: how much of what is drawn too often is made up for."""

    kind: ScheduleKind = "linear"
    """`constant` (start throughout), `linear`, `cosine`, `exponential`, or `exp5` (ends 0.7 % short of its end)."""
    start: float = Field(0.4, ge=0, le=1)
    """β at first."""
    end: float = Field(1.0, ge=0, le=1)
    """β at last: 1 makes up for all of it."""


class PrioritySettings(Settings):
    """How much oftener rows are drawn that a learner was wrong about."""

    exponent: float = Field(0.0, ge=0, le=1)
    """α: 0 draws all rows alike, 1 in proportion to their errors; 0.6 is usual."""
    correction: CorrectionSchedule = CorrectionSchedule()
    """β of the weights that make up for it: a number, or a group {start, end, over}."""
    epsilon: float = Field(1e-6, ge=1e-12)
    """Added to errors: a row without one is still drawn."""

    @field_validator("correction", mode="before")
    @classmethod
    def _a_number_is_constant(cls, beta: object) -> object:
        is_number = isinstance(beta, (int, float, str)) and not isinstance(beta, bool)
        return {"kind": "constant", "start": beta} if is_number else beta

    @model_validator(mode="after")
    def _used(self) -> Self:
        if not self.exponent and self.correction != CorrectionSchedule():
            raise ValueError(
                "correction means nothing with exponent=0: rows are drawn alike. Set exponent, such as 0.6"
            )
        return self


def priority(size: Numbers, settings: PrioritySettings, largest: float) -> Numbers:
    """p [B] of errors |δ| [B]; of what is no number, the largest: whoever learned it is told of it elsewhere."""
    raised = (size + settings.epsilon) ** settings.exponent
    return np.where(np.isfinite(raised), raised, largest)


def sample_weights(probability: Numbers, rows: int, beta: float) -> Numbers:
    """(N·P)^−β [B] of rows drawn with probability P [B] out of N; 1 where all are as likely."""
    return np.asarray((rows * probability) ** -beta)


@final
@dataclass
class Priorities:
    """The priorities of some rows, by number. Its leaves are state; so a resumed run draws on to the bit."""

    settings: Static[PrioritySettings]
    tree: SumTree
    rows: int = 0
    """N: how many can be drawn."""
    largest: float = 1.0
    """What new rows begin with: the largest priority there was."""
    admitted: int = 0
    """Rows ever given to the ring that it follows, of which it knows."""
    last: Static[Tensor] = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """The rows of the last batch, which are told of before another is drawn."""
    weights: Static[Tensor] = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    """(N·P)^−β of these."""

    @classmethod
    def over(cls, settings: PrioritySettings, capacity: int) -> "Priorities":
        """Nothing can be drawn yet."""
        return cls(settings, SumTree.of(capacity))

    def admit(self, rows: Rows, drawable: NDArray[np.bool_]) -> None:
        """New rows in the places [B], none of them told twice; one that is not drawable is never drawn."""
        self.rows += int(drawable.sum()) - int((self.tree.weights(rows) > 0).sum())
        self.tree.set(rows, np.where(drawable, self.largest, 0.0))

    def follow(self, ring: ReplayRing) -> None:
        """Admit the rows that a ring was given since, in the places that they took."""
        capacity, written = ring.rows.capacity, ring.rows.written
        added = min(written - self.admitted, capacity)
        if added:
            rows = (written - added + np.arange(added)) % capacity
            self.admit(rows, ring.valid(torch.from_numpy(rows)).numpy())
            self.admitted = written

    def draw(self, size: int, updates: int, rng: torch.Generator) -> Tensor:
        """Rows by number [size]; β is that after so many updates."""
        fractions = torch.rand(size, dtype=torch.float64, generator=rng).numpy()
        rows, probability = self.tree.draw(fractions)
        weights = sample_weights(probability, self.rows, self.beta(updates))
        self.last, self.weights = torch.from_numpy(rows), torch.from_numpy(weights)
        return self.last

    def weigh(self, batch: Transitions, share: Share = ALL) -> Transitions:
        """The batch that begins with the rows drawn last, and what its rows count; any beside them are drawn alike.

        Of a share, the batch is only that.
        """
        beside = torch.ones(share.size * len(batch.reward) - len(self.weights), dtype=torch.float64)
        weights = torch.cat([self.weights, beside])
        column = share.of(weights / weights.amax()).to(batch.reward.device, torch.float32)
        return replace(batch, extra={**batch.extra, SAMPLE_WEIGHT: column})

    def learn(self, feedback: Mapping[str, Tensor]) -> None:
        """How wrong a learner was about the rows drawn last; one that came twice is what it was at last."""
        if len(self.last):
            self.set(self.last, feedback[PRIORITY][: len(self.last)])

    def set(self, rows: Tensor, size: Tensor) -> None:
        """The sizes of errors [B] of rows [B] that can be drawn."""
        weights = priority(size.double().cpu().numpy(), self.settings, self.largest)
        self.tree.set(rows.numpy(), weights)
        self.largest = max(self.largest, float(weights.max()))

    def beta(self, updates: int) -> float:
        return float(self.settings.correction.value(torch.tensor(updates)))

    def metrics(self, updates: int) -> Metrics:
        told = {
            "correction": self.beta(updates),
            "largest": self.largest,
            "mean": self.tree.total / max(self.rows, 1),
        }
        return {f"priority/{name}": torch.tensor(value, dtype=torch.float64) for name, value in told.items()}


@final
@dataclass
class PrioritySampler:
    """One batch at a time: those drawn ahead would not know what the learner just said of rows."""

    gather: Static[Callable[[Tensor], Transitions]]
    """Rows by number [B] → the batch."""
    batch_size: Static[int]
    seed: Static[int]
    priorities: Priorities
    share: Static[Share] = ALL
    """Which rows of a batch are given to this process; all processes know all priorities."""
    drawn: int = 0
    """Batches handed out so far."""

    def next(self) -> Transitions:
        rows = self.priorities.draw(self.batch_size, self.drawn, stream(self.seed, f"sample/{self.drawn}"))
        self.drawn += 1
        return self.priorities.weigh(self.gather(self.share.of(rows)), self.share)

    def learn(self, feedback: Mapping[str, Tensor]) -> None:
        """How wrong the learner was about the rows of the last batch."""
        self.priorities.learn({PRIORITY: self.share.gathered(feedback[PRIORITY])})


def check_told(settings: PrioritySettings, demand: Demand) -> None:
    """The algorithm tells what rows are drawn by, and heeds what they count then."""
    if settings.exponent and not demand.priorities:
        raise ConfigError(
            "source.priority.exponent",
            "this algorithm does not say how wrong it was about a row",
            got=settings.exponent,
            do="Leave it at 0, or use an algorithm that does, such as iql.",
        )
