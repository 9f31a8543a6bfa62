"""Per-row weights and what to watch about them."""

import math

import torch
from torch import Tensor


def awr_weights(advantage: Tensor, beta: float, ceiling: float) -> Tensor:
    """ω [B] = exp(min(β·A, ln ω_max)), a constant. The exponent is clamped: exp overflows float32 at 88.7."""
    return torch.exp((beta * advantage.detach()).clamp(max=math.log(ceiling)))


def effective_sample_size(weights: Tensor) -> Tensor:
    """(Σω)²/Σω² []: how many equally weighted rows would carry as much information."""
    return weights.sum().square() / torch.dot(weights, weights).clamp(min=torch.finfo(weights.dtype).tiny)


def clipped_share(advantage: Tensor, beta: float, ceiling: float) -> Tensor:
    """Share [] of rows whose AWR weight sits at its ceiling."""
    return (beta * advantage.detach() >= math.log(ceiling)).float().mean()
