"""Densities of policies that explore: how likely an action was, how wide the choice, how far a policy has moved.

A trunk's outputs become *features*, which hold all a density depends on, also what is no function of the state (σ of a
plain Gaussian) and what the mask forbids. Everything else is a pure function of features, so the features of a rollout
are the whole old policy: `kl(old_features, new_features)` needs nothing else.

Shapes are [..., outputs] → [...]: one batch [B], or many environments over time [T, N].
"""

from typing import Literal, Protocol

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.settings import Settings
from understudy.core.spec import ActionSpace, Discrete, MultiDiscrete
from understudy.nn.action_evaluation import ActionEvaluation
from understudy.nn.beta_density import Beta
from understudy.nn.choice_density import Choice, MultiCategorical
from understudy.nn.gaussian_density import Gaussian, StateGaussian, TanhGaussian

DensityName = Literal["gaussian", "state_gaussian", "tanh_gaussian", "beta"]


class Density(Protocol):
    """Over continuous actions in policy space [..., A], or over choices [...] or [..., factors]."""

    outputs: int
    """How wide the trunk's last layer must be."""

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the other methods read [..., features]; `mask` [..., outputs] forbids choices."""

    def mode(self, features: Tensor) -> Tensor: ...

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor: ...

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        """[...]."""

    def entropy(self, features: Tensor) -> Tensor:
        """[...]."""

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) [...] of two policies in the same states."""


class DensitySettings(Settings):
    """How continuous actions are drawn. Choices are always drawn by their logits."""

    kind: DensityName = "gaussian"
    """`gaussian` (σ learned, the same in every state), `state_gaussian` (σ of the state), `tanh_gaussian` (tanh of the
    latter, inside the box) or `beta` (inside the box)."""
    initial_std: float = Field(1.0, gt=0)
    """σ of a Gaussian at the start, in policy space, where the action range is [-1, 1]."""
    min_std: float = Field(1e-3, gt=0)
    """σ of a Gaussian never falls below."""
    max_std: float = Field(10.0, gt=0)
    """σ of a Gaussian never rises above."""

    @model_validator(mode="after")
    def _ordered(self) -> "DensitySettings":
        if not self.min_std <= self.initial_std <= self.max_std:
            raise ValueError(
                f"σ must start between its limits: got {self.min_std:g} ≤ {self.initial_std:g} ≤ {self.max_std:g}"
            )
        return self


GAUSSIANS: dict[str, type[Gaussian] | type[StateGaussian] | type[TanhGaussian]] = {
    "gaussian": Gaussian,
    "state_gaussian": StateGaussian,
    "tanh_gaussian": TanhGaussian,
}


def make_density(space: ActionSpace, settings: DensitySettings) -> Density:
    """The density that fits the action space."""
    if isinstance(space, Discrete):
        return Choice(space.count)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space.counts)
    if settings.kind == "beta":
        return Beta(space.size)
    return GAUSSIANS[settings.kind](space.size, settings.initial_std, settings.min_std, settings.max_std)


def judge(density: Density, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> ActionEvaluation:
    """Log-probability and entropy [...] of given actions, and the features, from a trunk's outputs; with gradient."""
    if isinstance(density, Gaussian):
        return density.judge(outputs, action)
    features = density.features(outputs, mask)
    return ActionEvaluation(density.log_prob(features, action), density.entropy(features), features)
