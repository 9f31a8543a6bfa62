"""Numbers that change with the count of updates: constant, linear, cosine, exponential, tanh.

p           = (t − after)/over, cut to [0, 1]
linear        start + (end − start)·p
cosine        end + (start − end)·½(1 + cos πp)
exponential   start·(end/start)^p; to an end of 0, where no share of the way is exponential,
              start·(1 − 1/over)^(t − after): each update takes 1/over of what is left
tanh          end + (start − end)·½(1 − tanh(2p − 1)/tanh 1)
exp5          end + (start − end)·e^(−5p), which stops short of its end: others' form

Who knows st_rl's GET_PROB_FUNC(name, s) writes

linear        max(0, 1 − x/s)           as {kind: linear, start: 1, end: 0, over: s}
exp           (1 − 1/s)^x               as {kind: exponential, start: 1, end: 0, over: s}
tanh          ½(1 − tanh((x − s)/s))    as {kind: tanh, start: 1, end: 0, over: 2s}, the same curve stretched to its
                                        ends: that one begins at 0.88 and still has 0.12 after 2s updates
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.settings import Settings

ScheduleKind = Literal["constant", "linear", "cosine", "exponential", "tanh", "exp5"]


class Schedule(Settings):
    """From `start` to `end` over some updates; constant before and after. A number is constant."""

    ONE_VALUE: ClassVar = ("start", "end")
    kind: ScheduleKind = "constant"
    """`constant` (start throughout), `linear`, `cosine`, `exponential` (to 0 it never ends), `tanh`, or `exp5` (ends
    0.7 % short of its end)."""
    start: float
    """Its value at first."""
    end: float
    """Its value at last."""
    after: int = Field(0, ge=0)
    """Updates before it begins to change."""
    over: int = Field(100_000, ge=1)
    """Updates from start to end; of an exponential to 0, updates in which it falls to 0.37 of its start."""

    @model_validator(mode="before")
    @classmethod
    def _an_end_is_meant(cls, data: object) -> object:
        """Whoever says where it ends, and not how, means a straight line; whoever says one number means it for good."""
        if isinstance(data, (int, float, str)) and not isinstance(data, bool):
            return {"kind": "constant", "start": data, "end": data}
        ends = isinstance(data, dict) and "kind" not in data and {"end", "after", "over"} & data.keys()
        return {"kind": "linear", **data} if ends and isinstance(data, dict) else data

    @classmethod
    def completed(cls, given: Mapping[str, Any], default: Self) -> Mapping[str, Any]:
        """What is not said is as in the default, where that changes; where it is constant, its start and end are, and
        another start of what stays is where it stays."""
        told = default.model_dump()
        if not given or not default.constant_at(default.start):
            return {**told, **given} if given else given
        if given.keys() == {"start"}:
            return {"kind": "constant", "start": given["start"], "end": given["start"]}
        return {"start": told["start"], "end": told["end"], **given}

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.kind == "exponential" and self.end != 0 and not (self.start > 0 and self.end > 0):
            told = f"got start={self.start:g}, end={self.end:g}"
            raise ValueError(f"an exponential schedule needs numbers above 0, or an end of 0: {told}")
        return self

    def constant_at(self, value: float) -> bool:
        """It never leaves this value."""
        return self.start == value and (self.kind == "constant" or self.end == value)

    def at(self, updates: int) -> float:
        """The number for the update that follows so many."""
        return float(self.value(torch.tensor(updates, device="cpu")))  # also in outlines, where tensors have no numbers

    def value(self, updates: Tensor) -> Tensor:
        """The number [] for the update that follows so many [], in float64."""
        if self.kind == "constant":
            return torch.full_like(updates, self.start, dtype=torch.float64)
        if self.kind == "exponential" and self.end == 0:
            return self.start * torch.pow(1.0 - 1.0 / self.over, (updates.double() - self.after).clamp(min=0.0))
        progress = ((updates.double() - self.after) / self.over).clamp(0.0, 1.0)
        return scheduled(self.kind, self.start, self.end, progress)


class ScheduledWeight(Schedule):
    """What something counts, which is never less than nothing. A number is constant."""

    start: float = Field(ge=0)
    """Its value at first."""
    end: float = Field(ge=0)
    """Its value at last."""


class ScheduledShare(Schedule):
    """A share or a probability. A number is constant."""

    start: float = Field(ge=0, le=1)
    """Its value at first."""
    end: float = Field(ge=0, le=1)
    """Its value at last."""


def scheduled(kind: ScheduleKind, start: float, end: float, progress: Tensor) -> Tensor:
    """The equations above, of p in [0, 1]; an exponential one ends above 0."""
    if kind == "constant":
        return torch.full_like(progress, start)
    if kind == "linear":
        return start + (end - start) * progress
    if kind == "cosine":
        return end + (start - end) * 0.5 * (1.0 + torch.cos(math.pi * progress))
    if kind == "exponential":
        return start * torch.exp(math.log(end / start) * progress)
    if kind == "tanh":
        return end + (start - end) * 0.5 * (1.0 - torch.tanh(2.0 * progress - 1.0) / math.tanh(1.0))
    return end + (start - end) * torch.exp(-5.0 * progress)
