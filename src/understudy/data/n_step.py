"""Rewards summed over a few steps of one episode."""

import torch
from torch import Tensor


def n_step_return(rewards: Tensor, lengths: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Σ_{k<m} γᵏ·r_k [B] and γᵐ [B] from windows [B, n] of which the first m = lengths [B] are real."""
    steps = torch.arange(rewards.shape[1], device=rewards.device)
    powers = torch.pow(torch.tensor(gamma, dtype=rewards.dtype, device=rewards.device), steps)
    inside = steps < lengths.unsqueeze(1)
    total = torch.where(inside, rewards * powers, 0.0).sum(1)
    return total, torch.pow(torch.tensor(gamma, dtype=rewards.dtype, device=rewards.device), lengths)
