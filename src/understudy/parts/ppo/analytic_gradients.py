"""Gradients of PPO's two losses written out, for networks that are one plain perceptron behind a fixed perception.

    ∂L_π/∂μ = g·z/σ,   ∂L_π/∂log σ = Σ g·(z² − 1) − η,   z = (a − μ)/σ,   g = −A·ρ/B, or 0 where it is clipped
    ∂L_V/∂V = 2(V − y)/B, or 0 where the clipped error is larger

and from there through the layers (nn.activated_layers). Autograd gives the same numbers
(tests/parts/ppo/test_analytic_gradients.py), and takes nearly as long for its bookkeeping of a small minibatch as for
the products. Everything here is of plain tensors and in no graph, so that TorchScript can compile it
(parts.ppo.fused_steps).
"""

from typing import NamedTuple

from torch import Tensor

from understudy.losses.surrogate import surrogate_with_slope, value_error_with_slope
from understudy.nn.activated_layers import layer_outputs, write_gradient
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian, clamp_gradient, deviation, deviation_slopes
from understudy.nn.mlp import MLP
from understudy.nn.plain_mlp import Layer
from understudy.nn.value_network import ValueNetwork


class Trunk(NamedTuple):
    """A plain perceptron, and room for its gradient."""

    layers: list[Layer]
    into: list[Layer]
    activation: str


class PolicySlopes(NamedTuple):
    """What some rows say of a policy, beside the gradient of its trunk."""

    surrogate: Tensor
    """[B]."""
    log_ratio: Tensor
    """log π/π_old [B]."""
    mean: Tensor
    """Of the density now [B, A]."""
    to_log_std: Tensor
    """[A]."""


def is_plain(network: Actor | ValueNetwork) -> bool:
    """Its slopes are written out here."""
    if isinstance(network, Actor):
        distribution = network.distribution
        if not (isinstance(distribution, Gaussian) and distribution.limits.returning):
            return False
    return network.perception.fixed and network.trunk.plain


def trunk_of(network: MLP) -> Trunk:
    return Trunk(network.layers(), network.gradient_room()[1], network.activation)


def policy_slopes(
    trunk: Trunk,
    log_std: Tensor,
    clamped_log_std: Tensor,
    seen: Tensor,
    action: Tensor,
    log_prob: Tensor,
    advantage: Tensor,
    clip: float,
    entropy_coef: float,
) -> PolicySlopes:
    """Of mean max(−A·ρ, −A·clip(ρ, 1 ± ε)) − η·H, over rows [B]; the trunk's gradient goes where it has room for it."""
    layers = layer_outputs(seen, trunk.layers, trunk.activation)
    found = deviation(layers[-1], clamped_log_std, action)
    log_ratio = found.log_prob - log_prob
    surrogate, slope = surrogate_with_slope(log_ratio, advantage, clip)
    to_mean, to_log_std = deviation_slopes(found, slope.div_(len(slope)), entropy_coef)
    write_gradient([seen] + layers[:-1], to_mean, trunk.layers, trunk.into, trunk.activation)  # noqa: RUF005
    return PolicySlopes(surrogate, log_ratio, layers[-1], clamp_gradient(to_log_std, log_std, clamped_log_std))


def value_slopes(
    trunk: Trunk, seen: Tensor, value: Tensor, target: Tensor, clip: float | None, weight: float
) -> Tensor:
    """Of the mean squared error, clipped or not, times a weight, over rows [B]: gives the errors."""
    layers = layer_outputs(seen, trunk.layers, trunk.activation)
    error, slope = value_error_with_slope(layers[-1].squeeze(-1), value, target, clip)
    delta = slope.mul_(weight / len(slope)).unsqueeze(-1)
    write_gradient([seen] + layers[:-1], delta, trunk.layers, trunk.into, trunk.activation)  # noqa: RUF005
    return error
