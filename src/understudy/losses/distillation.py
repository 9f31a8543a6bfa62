"""How far a student is from its teacher: per sample, over the action dimensions of a mean μ and a label a [..., A].

    mse            mean (μ − a)²                            mse_sum    Σ (μ − a)²
    l1             Σ |μ − a|                                l2, real   ‖μ − a‖₂
    huber          mean of (μ − a)²/2 within δ, δ(|μ − a| − δ/2) beyond
    tanh           2·mean BCE((m + 1)/2, (b + 1)/2),  m and b being μ and a held inside ±0.999
    scaled_tanh    mean BCE((m + 1)/2, (b + 1)/2)·‖μ − a‖₁/A

Cross entropy knows numbers in (0, 1) only, and a Gaussian's mean is anywhere: what is outside is held at ±0.999 and
keeps the slope that it has there, so it is neither an error nor stuck; a label is held, too, or nothing would ever be
near enough to it.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.losses.policy import squared_distance, summed_squared_distance

INSIDE = 0.999
"""Slopes of cross entropy are 1/(1 − m²): beyond this they would be all that counts."""


def absolute_distance(mean: Tensor, label: Tensor) -> Tensor:
    """‖μ − a‖₁ [...]."""
    check_same_shape(mean=mean, label=label)
    return (mean - label).abs().sum(-1)


def euclidean_distance(mean: Tensor, label: Tensor) -> Tensor:
    """‖μ − a‖₂ [...]; at 0 its slope is 0."""
    check_same_shape(mean=mean, label=label)
    distance: Tensor = torch.linalg.vector_norm(mean - label, dim=-1)
    return distance


def huber_distance(mean: Tensor, label: Tensor, delta: float = 1.0) -> Tensor:
    """Mean over dimensions of Huber's loss [...]."""
    check_same_shape(mean=mean, label=label)
    return F.huber_loss(mean, label, reduction="none", delta=delta).mean(-1)


def tanh_distance(mean: Tensor, label: Tensor) -> Tensor:
    """2·mean BCE [...] of both on a scale from 0 to 1."""
    return 2.0 * _cross_entropy(mean, label)


def scaled_tanh_distance(mean: Tensor, label: Tensor) -> Tensor:
    """mean BCE·‖μ − a‖₁/A [...]: 0 where they agree, which cross entropy alone is not."""
    return _cross_entropy(mean, label) * absolute_distance(mean, label) / mean.shape[-1]


def _cross_entropy(mean: Tensor, label: Tensor) -> Tensor:
    """Mean over dimensions [...]."""
    check_no_gradient(label=label)
    check_same_shape(mean=mean, label=label)
    held = mean + (mean.clamp(-INSIDE, INSIDE) - mean).detach()
    inside = label.clamp(-INSIDE, INSIDE)
    chance, wanted = (held + 1.0) / 2.0, (inside + 1.0) / 2.0
    return -(wanted * chance.log() + (1.0 - wanted) * (1.0 - chance).log()).mean(-1)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": squared_distance,
    "mse_sum": summed_squared_distance,
    "l1": absolute_distance,
    "l2": euclidean_distance,
    "real": euclidean_distance,
    "huber": huber_distance,
    "tanh": tanh_distance,
    "scaled_tanh": scaled_tanh_distance,
}
"""By name, of two vectors."""
