"""How actions are drawn: one vocabulary for all policies.

    gaussian            N(μ(s), σ²), any mean, σ the same in every state. Draws may leave the box; what is sent is cut
    tanh_mean_gaussian  N(tanh f(s), σ²), σ the same in every state; draws are cut to the box (IQL's)
    state_gaussian      N(μ(s), σ(s)²)
    tanh_gaussian       tanh of that, inside the box, with the exact change of variables (SAC's, CQL's)
    beta                inside the box, with nothing to cut
    deterministic       tanh f(s)
    categorical         one of K, among what a mask allows
    multi_categorical   one of each of several factors

A trunk's outputs become *features*, which hold all a distribution depends on, also what is no function of the state (a
free σ) and what the mask forbids. Everything else is a pure function of features, so the features of a rollout are the
whole old policy: `kl(old_features, new_features)` needs nothing else. Shapes are [..., outputs] → [...]: one batch [B],
or many environments over time [T, N]. Continuous actions are in policy space, where the action range is [-1, 1].
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, get_args

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.settings import Settings
from understudy.core.spec import ActionSpace, Box, Discrete, MultiDiscrete
from understudy.nn.distributions.beta import Beta
from understudy.nn.distributions.categorical import Categorical, MultiCategorical
from understudy.nn.distributions.gaussians import (
    Deterministic,
    Gaussian,
    Limits,
    StateGaussian,
    TanhGaussian,
    TanhMeanGaussian,
)

ContinuousKind = Literal["gaussian", "tanh_mean_gaussian", "state_gaussian", "tanh_gaussian", "beta", "deterministic"]
ChoiceKind = Literal["categorical", "multi_categorical"]
CONTINUOUS = get_args(ContinuousKind)


class Distribution(Protocol):
    """Over continuous actions in policy space [..., A], or over choices [...] or [..., factors]."""

    outputs: int
    """How wide the trunk's last layer must be."""

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the methods below read [..., features]; `mask` [..., outputs] forbids choices."""

    def mode(self, features: Tensor) -> Tensor: ...

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor: ...

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        """[...]."""

    def entropy(self, features: Tensor) -> Tensor:
        """[...]."""

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) [...] of two policies in the same states."""

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mode` of the trunk's outputs, without features in between."""

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        """`log_prob` [...] of the trunk's outputs; the gradient of a σ that all rows share goes to it at once."""


class ActionEvaluation(NamedTuple):
    """What a policy thinks of actions: how likely they are, how wide the choice was, and all its density depends on."""

    log_prob: Tensor
    """[...]."""
    entropy: Tensor
    """[...]."""
    features: Tensor
    """[..., F]: the whole distribution in these states, for `kl`."""


class SigmaSettings(Settings):
    """σ of a Gaussian: where it starts, and between what it stays."""

    initial_std: float = Field(1.0, gt=0)
    """σ of a Gaussian at the start, in policy space, where the action range is [-1, 1]."""
    log_std_min: float = -5.0
    """log σ of a Gaussian never falls below."""
    log_std_max: float = 2.0
    """log σ of a Gaussian never rises above."""
    clamp: Literal["hard", "returning"] = "returning"
    """Beyond these limits log σ has only the gradient that leads back (`returning`), or none, so that what has crossed
    one stays there (`hard`, as the code of SAC's, IQL's and CQL's authors)."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.log_std_min <= math.log(self.initial_std) <= self.log_std_max:
            raise ValueError(
                "σ must start between its limits: got "
                f"{math.exp(self.log_std_min):g} ≤ {self.initial_std:g} ≤ {math.exp(self.log_std_max):g}"
            )
        return self


class DistributionSettings(SigmaSettings):
    """How continuous actions are drawn; choices are always drawn by their logits. A word is its kind."""

    FORMER: ClassVar = {"min_std": "log_std_min", "max_std": "log_std_max"}

    kind: ContinuousKind | ChoiceKind = "tanh_mean_gaussian"
    """`gaussian`, `tanh_mean_gaussian`, `state_gaussian`, `tanh_gaussian`, `beta` or `deterministic`; of choices
    `categorical` and `multi_categorical` whatever is said here."""

    @model_validator(mode="before")
    @classmethod
    def _a_word_is_its_kind(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data


class OnPolicyDistributionSettings(DistributionSettings):
    """How a policy that explores draws continuous actions. A word is its kind."""

    kind: Literal["gaussian", "tanh_mean_gaussian", "state_gaussian", "tanh_gaussian", "beta"] | ChoiceKind = "gaussian"
    """`gaussian` (σ learned, the same in every state), `tanh_mean_gaussian` (its mean inside the box), `state_gaussian`
    (σ of the state), `tanh_gaussian` (tanh of the latter, inside the box) or `beta` (inside the box)."""
    log_std_min: float = math.log(1e-3)
    """log σ of a Gaussian never falls below: σ of 0.001."""
    log_std_max: float = math.log(10.0)
    """log σ of a Gaussian never rises above: σ of 10."""


TANH_MEANS = ("tanh_mean_gaussian", "deterministic")


def means_the_same(one: str, other: str) -> bool:
    """Greedy actions of these kinds are the same function of a trunk's outputs."""
    return one == other or (one in TANH_MEANS and other in TANH_MEANS)


def make_distribution(space: ActionSpace, settings: DistributionSettings, where: str = "distribution") -> Distribution:
    """The distribution that fits the action space."""
    if isinstance(space, Discrete):
        return Categorical(space.count)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space.counts)
    return make_continuous(space, settings, where)


def make_continuous(space: Box, settings: DistributionSettings, where: str) -> Distribution:
    kind, start = settings.kind, settings.initial_std
    limits = Limits(settings.log_std_min, settings.log_std_max, settings.clamp == "returning")
    if kind == "beta":
        return Beta(space.size)
    if kind == "deterministic":
        return Deterministic(space.size)
    if kind in GAUSSIANS:
        return GAUSSIANS[kind](space.size, start, limits)
    raise ConfigError(
        where, f"{kind} is of discrete actions", got=space.describe(), do=f"Say one of {', '.join(CONTINUOUS)}."
    )


GAUSSIANS: dict[str, type[Gaussian] | type[TanhMeanGaussian] | type[StateGaussian] | type[TanhGaussian]] = {
    "gaussian": Gaussian,
    "tanh_mean_gaussian": TanhMeanGaussian,
    "state_gaussian": StateGaussian,
    "tanh_gaussian": TanhGaussian,
}


def evaluate_outputs(
    distribution: Distribution, outputs: Tensor, action: Tensor, mask: Tensor | None = None
) -> ActionEvaluation:
    """Log-probability and entropy [...] of given actions, and the features, from a trunk's outputs; with gradient."""
    if isinstance(distribution, Gaussian):
        return ActionEvaluation(*distribution.evaluate(outputs, action))
    features = distribution.features(outputs, mask)
    return ActionEvaluation(distribution.log_prob(features, action), distribution.entropy(features), features)
