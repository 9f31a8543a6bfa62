"""How far estimates are from what they estimate: errors of rows to learn from, and scores to judge by.

e = estimate − target
mse     e²
l1      |e|
huber   e²/2 where |e| ≤ δ, else δ·(|e| − δ/2)
R²      1 − Σ e²/Σ (target − mean target)²
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

ErrorKind = Literal["mse", "l1", "huber"]


def estimation_error(
    estimate: Tensor, target: Tensor, kind: ErrorKind, *, delta: float = 1.0, reduction: Literal["mean", "sum"] = "mean"
) -> Tensor:
    """Of rows [...], over their K features: the mean, or the sum."""
    if kind == "huber":
        errors = F.huber_loss(estimate, target, reduction="none", delta=delta)
    else:
        apart = estimate - target
        errors = apart.square() if kind == "mse" else apart.abs()
    return errors.mean(-1) if reduction == "mean" else errors.sum(-1)


def mean_squared_errors(estimate: Tensor, target: Tensor) -> Tensor:
    """Of each feature [K], over rows [B, K]."""
    return (estimate - target).square().mean(0)


def r_squared(estimate: Tensor, target: Tensor) -> Tensor:
    """Of each feature [K], over rows [B, K]: 1 is perfect, 0 is no better than the mean. NaN where the target does not
    vary: there is nothing to explain."""
    variance = target.var(0, correction=0)
    varies = variance > torch.finfo(target.dtype).eps * target.square().mean(0)
    return torch.where(varies, 1.0 - mean_squared_errors(estimate, target) / variance, torch.nan)
