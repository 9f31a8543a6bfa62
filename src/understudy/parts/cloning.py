"""Staying near the data: what a policy's distance from it is, and how much that counts.

    mse        ‖π(s) − a‖², summed or averaged over dimensions; averaged, D times the weight is the same. Not of choices
    log_prob   −log π(a|s): KL(β‖π) but for a constant. Of a deterministic policy it is the summed mse
    kl         KL(π‖β̂) in closed form, β̂ a policy that clones alongside; both before their tanh, which changes nothing
    auto       mse; of choices log_prob, which is the cross-entropy

and λ(t) either follows a schedule or, `adaptive`, is raised while the distance is above its target (dual ascent):

    log λ ← log λ + η·(distance − target),  λ within its bounds

Rows may count by how sure the policy is of them (`losses.selection.confidence_weights`).
"""

import math
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from understudy.core.errors import ConfigError
from understudy.core.protocols import Metrics
from understudy.core.ranks import across
from understudy.core.schedule import Schedule
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.losses.policy import (
    gaussian_kl,
    negative_log_likelihood,
    squared_distance,
    summed_squared_distance,
)
from understudy.nn.actor import Actor
from understudy.nn.distributions.categorical import choice_kl
from understudy.nn.perception import Seen
from understudy.parts.optim import Adam

CloningKind = Literal["auto", "mse", "log_prob", "kl"]


class WeightSchedule(Schedule):
    """λ: how much cloning counts."""

    start: float = Field(1.0, ge=0)
    """Its value at first."""
    end: float = Field(0.1, ge=0)
    """Its value at last."""


class AdaptiveSettings(Settings):
    """λ by dual ascent."""

    target: float
    """The distance from the data that is aimed at, in units of the chosen kind."""
    rate: float = Field(0.01, gt=0)
    """η: how fast log λ follows."""
    smallest: float = Field(0.01, gt=0)
    """λ is at least this."""
    largest: float = Field(100.0, gt=0)
    """λ is at most this."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.smallest < self.largest:
            raise ValueError(f"smallest={self.smallest} must be below largest={self.largest}")
        return self


class CloningSettings(Settings):
    """How the policy is held near the data."""

    kind: CloningKind = "auto"
    """`mse`, `log_prob`, `kl` (squashed policies and choices), or `auto`: mse, of choices log_prob."""
    reduction: Literal["mean", "sum"] = "mean"
    """Of `mse` over action dimensions: `mean` as TD3+BC, `sum` as ReBRAC."""
    weight: WeightSchedule = WeightSchedule()
    """λ against the value, which alpha scales: `weight: 1` or 0 (no cloning) is constant."""
    adaptive: AdaptiveSettings | None = None
    """Let λ follow the distance instead; weight.start is where it begins."""
    confidence: float = 0.0
    """κ: above 0 the rows of which the policy is least sure are cloned hardest, by exp(−κ·z(log π(a|s))); below 0 those
    of which it is surest. 0: all alike."""
    confidence_bound: float = Field(10.0, gt=1)
    """Those factors stay between its inverse and this, before they are scaled to average 1."""

    @field_validator("weight", mode="before")
    @classmethod
    def _a_number_is_constant(cls, weight: object) -> object:
        is_number = isinstance(weight, (int, float, str)) and not isinstance(weight, bool)
        return {"kind": "constant", "start": weight} if is_number else weight

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.adaptive is not None and self.weight.kind != "constant":
            raise ValueError(f"adaptive moves the weight, and so does weight.kind={self.weight.kind}: use one of them")
        if self.reduction == "sum" and self.kind not in ("auto", "mse"):
            raise ValueError(f"reduction=sum means nothing with kind={self.kind}")
        if self.adaptive is not None and self.adaptive.target <= 0 and self.kind != "log_prob":
            raise ValueError(f"adaptive.target={self.adaptive.target} can never be reached: {self.kind} is above 0")
        if self.adaptive is not None and not self.adaptive.smallest <= self.weight.start <= self.adaptive.largest:
            raise ValueError(f"adaptive begins at weight.start={self.weight.start}, which is outside its bounds")
        return self


@final
@dataclass
class CloningWeight:
    """λ of one learner."""

    settings: Static[CloningSettings]
    log_weight: Tensor
    """Moves where λ is adaptive."""

    @classmethod
    def of(cls, settings: CloningSettings, device: torch.device) -> "CloningWeight":
        start = math.log(settings.weight.start) if settings.adaptive is not None else 0.0
        return cls(settings, torch.tensor(start, device=device))

    def weight(self, updates: Tensor) -> Tensor | float:
        """λ [] for the update that follows so many."""
        if self.settings.adaptive is not None:
            return self.log_weight.exp()
        if self.settings.weight.kind == "constant":
            return self.settings.weight.start
        return self.settings.weight.value(updates).to(self.log_weight)

    @torch.no_grad()
    def follow(self, distance: Tensor) -> None:
        """Dual ascent, if asked for, from the mean distance []."""
        adaptive = self.settings.adaptive
        if adaptive is not None:
            self.log_weight.add_(adaptive.rate * (across(distance.detach()) - adaptive.target))
            self.log_weight.clamp_(math.log(adaptive.smallest), math.log(adaptive.largest))


@final
@dataclass
class ClonedPolicy:
    """β̂: a policy that clones the data by likelihood while others learn."""

    policy: Actor
    optimizer: Adam

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy}

    def follow(self, seen: Seen, action: Tensor, learning_rate: float, mask: Tensor | None = None) -> Tensor:
        """One step; the loss []."""
        loss = negative_log_likelihood(self.policy.log_prob(seen.by(self.policy), action, mask)).mean()
        self.optimizer.minimise(loss, learning_rate)
        return loss.detach()


def believed(
    behaviour: tuple[ClonedPolicy, ...], seen: Seen, action: Tensor, learning_rate: float, mask: Tensor | None = None
) -> tuple[Metrics, Tensor | None]:
    """β̂ clones on, if there is one: its loss, and what its distribution then reads [B, …], without gradient."""
    if not behaviour:
        return {}, None
    (model,) = behaviour
    loss = model.follow(seen, action, learning_rate, mask)
    with torch.no_grad():
        return {"loss/behaviour": loss}, model.policy.features(seen.by(model.policy), mask)


def check_choices(settings: CloningSettings) -> None:
    """Discrete actions have no distances."""
    if settings.kind == "mse" or settings.reduction == "sum":
        raise ConfigError(
            "algo.cloning.kind",
            "mse is of continuous actions",
            got=settings.kind,
            expected="auto, log_prob or kl",
            do="Leave reduction out, too.",
        )


def cloning_distance(
    settings: CloningSettings, policy: Actor, features: Tensor, greedy: Tensor, action: Tensor, behaviour: Tensor | None
) -> Tensor:
    """How far a policy, which acts `greedy` [B, …] by its `features`, is from the data's actions [B, …]: [B].

    `behaviour` are β̂'s features, without gradient.
    """
    if settings.kind == "log_prob" or (settings.kind == "auto" and policy.discrete):
        return negative_log_likelihood(policy.distribution.log_prob(features, action))
    if settings.kind == "kl":
        assert behaviour is not None
        if policy.discrete:
            return choice_kl(features, behaviour)
        return gaussian_kl(*features.chunk(2, dim=-1), *behaviour.chunk(2, dim=-1))
    distance = squared_distance if settings.reduction == "mean" else summed_squared_distance
    return distance(greedy, action)
