"""Gradients of PPO's two losses written out, for networks that are one plain perceptron behind a fixed perception.

    ∂L_π/∂μ = g·z/σ,   ∂L_π/∂log σ = Σ g·(z² − 1) − η,   z = (a − μ)/σ,   g = −A·ρ/B, or 0 where it is clipped
    ∂L_V/∂V = 2(V − y)/B, or 0 where the clipped error is larger

and from there through the layers (nn.activated_mlp). Autograd gives the same numbers (tests/parts/test_slopes.py), and
takes nearly as long for its bookkeeping of a small minibatch as for the products.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from understudy.losses.surrogate import clipped_value_error, clipped_value_slope, surrogate_with_slope
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.nn.gaussian_density import Gaussian
from understudy.nn.value_network import ValueNetwork
from understudy.parts.study import FEATURES, SEEN, Study


class PolicyStep(NamedTuple):
    """What one minibatch says of a policy."""

    loss: Tensor
    entropy: Tensor
    log_ratio: Tensor
    """log π/π_old [B]."""
    features: Tensor
    """The density now [B, F], if the study has that before."""
    gradients: dict[Tensor, Tensor]
    """Of each parameter; it holds until the next one is computed."""


class ValueStep(NamedTuple):
    """What one minibatch says of a value function."""

    loss: Tensor
    gradient: Tensor


def is_plain(network: ExploringPolicy | ValueNetwork) -> bool:
    """Its slopes are written out here."""
    gaussian = not isinstance(network, ExploringPolicy) or isinstance(network.density, Gaussian)
    return network.perception.fixed and network.trunk.plain and gaussian


@torch.no_grad()
def policy_slopes(policy: ExploringPolicy, study: Study, clip: float, entropy_weight: float) -> PolicyStep:
    """Of mean max(−A·ρ, −A·clip(ρ, 1 ± ε)) − η·H, over rows [B]."""
    density, trunk, seen = policy.density, policy.trunk, study.policy_obs[SEEN]
    assert isinstance(density, Gaussian)
    layers = trunk.trace(seen)
    deviation = density.deviation(layers[-1], study.action)
    log_ratio = deviation.log_prob - study.log_prob
    surrogate, slope = surrogate_with_slope(log_ratio, study.advantage, clip)
    to_mean, to_log_std = density.slopes(deviation, slope.div_(len(slope)), entropy_weight)
    entropy, features = density.width(), density.features(layers[-1]) if FEATURES in study.extra else layers[-1]
    gradients: dict[Tensor, Tensor] = {density.log_std: to_log_std, trunk.flat: trunk.gradient(seen, layers, to_mean)}
    return PolicyStep(surrogate.mean() - entropy_weight * entropy, entropy, log_ratio, features, gradients)


@torch.no_grad()
def value_slopes(value: ValueNetwork, study: Study, clip: float | None, weight: float) -> ValueStep:
    """Of the mean squared error, clipped or not, times a weight; over rows [B]."""
    seen = study.value_obs[SEEN]
    layers = value.trunk.trace(seen)
    values = layers[-1].squeeze(-1)
    if clip is None:
        difference = values - study.target
        error, slope = difference.square(), difference.mul_(2.0)
    else:
        error = clipped_value_error(values, study.value, study.target, clip)
        slope = clipped_value_slope(values, study.value, study.target, clip)
    delta = slope.mul_(weight / len(slope)).unsqueeze(-1)
    return ValueStep(error.mean(), value.trunk.gradient(seen, layers, delta))
