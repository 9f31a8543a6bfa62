"""Losses of proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """max(−A·ρ, −A·clip(ρ, 1 ± ε)) [B], ρ = π(a|s)/π_old(a|s)."""
    check_no_gradient(old_log_prob=old_log_prob, advantage=advantage)
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage)
    ratio = torch.exp(log_prob - old_log_prob)
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1.0 - clip, 1.0 + clip))


def clipped_value_error(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> Tensor:
    """The larger of (V − y)² and (V_old + clip(V − V_old, ±ε) − y)² [B]: V moves at most ε, in units of reward."""
    check_no_gradient(old_value=old_value, target=target)
    check_same_shape(value=value, old_value=old_value, target=target)
    held = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (held - target).square())


def outside_share(log_prob: Tensor, old_log_prob: Tensor, clip: float) -> Tensor:
    """Share [] of rows whose ratio left 1 ± ε."""
    ratio = torch.exp(log_prob.detach() - old_log_prob)
    return ((ratio - 1.0).abs() > clip).float().mean()
