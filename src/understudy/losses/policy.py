"""Losses of policies."""

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.core.ranks import across

SMALLEST_VALUE = 1e-8
"""Below this, mean|Q| does not scale any more: critics that say 0 everywhere must not give an infinite step."""


def negative_log_likelihood(log_prob: Tensor) -> Tensor:
    """−log π(a|s) [B]: behaviour cloning."""
    return -log_prob


def weighted_negative_log_likelihood(log_prob: Tensor, weight: Tensor) -> Tensor:
    """−ω·log π(a|s) [B]: advantage-weighted regression. ω ≡ 1 is behaviour cloning, to the bit."""
    check_no_gradient(weight=weight)
    check_same_shape(log_prob=log_prob, weight=weight)
    return -(weight * log_prob)


def squared_distance(mean_action: Tensor, action: Tensor) -> Tensor:
    """Mean over dimensions of (μ(s) − a)² [B]: cloning with a deterministic policy."""
    check_same_shape(mean_action=mean_action, action=action)
    return (mean_action - action).square().mean(-1)


def summed_squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """‖a − b‖² [B]: the sum over dimensions, D times `squared_distance`."""
    check_same_shape(left=left, right=right)
    return (left - right).square().sum(-1)


def value_scale(value: Tensor) -> Tensor:
    """λ [] = 1/mean|Q|, a constant: what makes the weight of Q against a penalty independent of rewards' units."""
    return 1.0 / across(value.detach().abs().mean()).clamp(min=SMALLEST_VALUE)


def penalised_climb(value: Tensor, weight: float | Tensor, distance: Tensor, penalty: float | Tensor) -> Tensor:
    """penalty·d − weight·Q [B]: a policy climbs Q(s, π(s)) and stays near the data. TD3+BC, ReBRAC, IACT."""
    check_same_shape(value=value, distance=distance)
    for name, factor in (("weight", weight), ("penalty", penalty)):
        if isinstance(factor, Tensor):
            check_no_gradient(**{name: factor})
    return penalty * distance - weight * value


def gaussian_kl(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(μ₂, σ₂²)) [B], summed over dimensions [B, A]: log(σ₂/σ) + (σ² + (μ − μ₂)²)/(2σ₂²) − ½."""
    check_same_shape(mean=mean, log_std=log_std, other_mean=other_mean, other_log_std=other_log_std)
    shrunk = torch.exp(2.0 * (log_std - other_log_std))
    shift = ((mean - other_mean) * torch.exp(-other_log_std)).square()
    return (other_log_std - log_std + 0.5 * (shrunk + shift) - 0.5).sum(-1)
