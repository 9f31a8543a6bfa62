"""Losses of proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347), and the step size that keeps it
proximal (`adaptive`, as rsl_rl's)."""

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape

SMALLEST_RATE, LARGEST_RATE, RATE_FACTOR = 1e-5, 1e-2, 1.5
"""Where an adaptive step size stays, and what it is divided or multiplied by."""


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """max(−A·ρ, −A·clip(ρ, 1 ± ε)) [B], ρ = π(a|s)/π_old(a|s)."""
    check_no_gradient(old_log_prob=old_log_prob, advantage=advantage)
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage)
    ratio = torch.exp(log_prob - old_log_prob)
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1.0 - clip, 1.0 + clip))


def surrogate_with_slope(log_ratio: Tensor, advantage: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """`clipped_surrogate` from log ρ [B], and its slope ∂/∂log π: −A·ρ, or 0 where nothing is gained by going on."""
    ratio, cost = torch.exp(log_ratio), -advantage
    plain, held = cost * ratio, cost * ratio.clamp(1.0 - clip, 1.0 + clip)
    return torch.maximum(plain, held), plain.masked_fill(plain < held, 0.0)


def clipped_value_error(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> Tensor:
    """The larger of (V − y)² and (V_old + clip(V − V_old, ±ε) − y)² [B]: V moves at most ε, in units of reward."""
    check_no_gradient(old_value=old_value, target=target)
    check_same_shape(value=value, old_value=old_value, target=target)
    held = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (held - target).square())


def value_error_with_slope(
    value: Tensor, old_value: Tensor, target: Tensor, clip: float | None
) -> tuple[Tensor, Tensor]:
    """(V − y)² [B], or `clipped_value_error`, and its slope ∂/∂V: 2(V − y), or 0 where V left its clip and the held
    one has the larger error."""
    error = value - target
    if clip is None:
        return error.square(), 2.0 * error
    moved = value - old_value
    squared, held = error.square(), (old_value + moved.clamp(-clip, clip) - target).square()
    return torch.maximum(squared, held), (2.0 * error).masked_fill((moved.abs() > clip) & (held > squared), 0.0)


def clip_fraction(log_prob: Tensor, old_log_prob: Tensor, clip: float) -> Tensor:
    """Share [] of rows whose ratio left 1 ± ε."""
    ratio = torch.exp(log_prob.detach() - old_log_prob)
    return ((ratio - 1.0).abs() > clip).float().mean()


def estimated_kl(log_ratio: Tensor) -> Tensor:
    """KL(before‖now) [] from log ρ [B] of actions drawn before: mean ρ − 1 − log ρ, which is never negative."""
    return (log_ratio.exp() - 1.0 - log_ratio).mean()


def adapted_rate(
    rate: Tensor,
    kl: Tensor,
    target: float,
    smallest: float = SMALLEST_RATE,
    largest: float = LARGEST_RATE,
    factor: float = RATE_FACTOR,
) -> Tensor:
    """Divided by 1.5 where the policy moved more than twice the target, multiplied where less than half."""
    too_far, too_near = kl > 2.0 * target, kl < 0.5 * target
    wished = torch.where(too_far, rate / factor, rate)
    return torch.where(too_near & (kl > 0), wished * factor, wished).clamp(smallest, largest)
