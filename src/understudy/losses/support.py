"""Which discrete actions the data supports, as in BCQ (Fujimoto et al. 2019, arXiv:1910.01708)."""

import math

import torch
from torch import Tensor

from understudy.core.checks import check_same_shape


def supported(log_prob: Tensor, threshold: float, mask: Tensor | None = None) -> Tensor:
    """[B, A]: legal, and β(a|s) ≥ threshold·max_a β(a|s) among the legal, given log β [B, A].

    The likeliest legal action always is. At 0 every legal action is; at 1 the likeliest alone.
    """
    if mask is None:
        mask = torch.ones_like(log_prob, dtype=torch.bool)
    check_same_shape(log_prob=log_prob, mask=mask)
    legal = torch.where(mask, log_prob, torch.finfo(log_prob.dtype).min)
    floor = legal.amax(-1, keepdim=True) + (math.log(threshold) if threshold > 0 else -math.inf)
    return mask & (legal >= floor)
