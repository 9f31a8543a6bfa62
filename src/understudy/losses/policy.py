"""Losses of policies."""

from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape


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
