"""Per-row weights and what to watch about them."""

import math
from typing import Literal

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.core.ranks import across, own, whole

AwrNorm = Literal["none", "batch_mean", "softmax"]


def awr_weights(
    advantage: Tensor, beta: float, ceiling: float, *, norm: AwrNorm = "none", floor: float | None = None
) -> Tensor:
    """ω [B] = exp(min(β·A, ln ω_max)), a constant. The exponent is clamped: exp overflows float32 at 88.7.

    `batch_mean` divides by the mean ω of the batch. `softmax` is B·softmax(β·A), which is the same without a ceiling,
    so that one row can outweigh all others. `floor` raises advantages to it first: at 0, bad actions weigh as much as
    average ones. The last two are others' forms, kept to reproduce them.
    """
    raised = advantage.detach() if floor is None else advantage.detach().clamp(min=floor)
    exponent = beta * raised
    if norm == "softmax":
        everybody = whole(exponent)
        return own(len(everybody) * torch.softmax(everybody, dim=0))
    weights = torch.exp(exponent.clamp(max=math.log(ceiling)))
    return weights if norm == "none" else weights / across(weights.mean()).clamp(min=torch.finfo(weights.dtype).tiny)


def effective_sample_size(weights: Tensor) -> Tensor:
    """(Σω)²/Σω² []: how many equally weighted rows would carry as much information."""
    squares = across(torch.dot(weights, weights))
    return across(weights.sum()).square() / squares.clamp(min=torch.finfo(weights.dtype).tiny)


def clipped_share(advantage: Tensor, beta: float, ceiling: float) -> Tensor:
    """Share [] of rows whose AWR weight sits at its ceiling."""
    return (beta * advantage.detach() >= math.log(ceiling)).float().mean()


def weigh(values: Tensor, weights: Tensor | None) -> Tensor:
    """w·x [K, B] or [B] of weights [B]; x itself where there are none."""
    return values if weights is None else weights * values


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Σ wᵢ·Lᵢ / Σ wᵢ [] over a batch; a batch without any weight gives 0, not NaN."""
    check_no_gradient(weights=weights)
    check_same_shape(losses=losses, weights=weights)
    return (weights * losses).sum() / across(weights.sum()).clamp(min=torch.finfo(weights.dtype).tiny)
