"""Distributions of returns as M quantiles (QR-DQN, Dabney and others 2017, arXiv:1710.10044)."""

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape


def quantile_huber_loss(quantiles: Tensor, target: Tensor, threshold: float = 1.0) -> Tensor:
    """Σ_i mean_j |τ_i − 1{u<0}|·H_κ(u)/κ [K, B], u = target_j − θ_i: quantiles [K, B, M] of the samples [B, N].

    τ_i = (i − ½)/M; H_κ is Huber's loss, ½u² up to κ and κ(|u| − ½κ) beyond. Its minimisers are the target's quantiles.
    """
    check_no_gradient(target=target)
    check_same_shape(quantile=quantiles[0, :, 0], target=target[:, 0])
    count = quantiles.shape[-1]
    levels = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    error = target.unsqueeze(1) - quantiles.unsqueeze(-1)
    size = error.abs()
    inside = size.clamp(max=threshold)
    huber = inside * (size - 0.5 * inside) / threshold
    return ((levels.unsqueeze(-1) - (error.detach() < 0).to(levels.dtype)).abs() * huber).mean(-1).sum(-1)


def least_member(quantiles: Tensor) -> Tensor:
    """Of K members' quantiles [K, B, M], row by row those of the member that expects least: [B, M]."""
    member = quantiles.mean(-1).argmin(0)
    return quantiles.gather(0, member.view(1, -1, 1).expand(1, -1, quantiles.shape[-1])).squeeze(0)
