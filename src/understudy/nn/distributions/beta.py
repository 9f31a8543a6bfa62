"""A Beta density on [-1, 1]: bounded like the box, with nothing to cut (Chou et al. 2017, ICML)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy.nn.distributions.gaussians import ACTION_LIMIT

LOG_2 = math.log(2.0)
"""a = 2x − 1 spreads the density of x ∈ [0, 1] over twice the length."""


class Beta(nn.Module):
    """a = 2x − 1, x ~ Beta(α(s), β(s)) with α, β = 1 + softplus: one peak, no density piled on the edges.

    Features [..., 2A] are α − 1 and β − 1. Gamma functions are taken in float64: of large α and β they are large
    numbers whose difference is a small one.
    """

    def __init__(self, action_size: int) -> None:
        super().__init__()
        self.outputs = 2 * action_size

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.softplus(outputs)

    def mode(self, features: Tensor) -> Tensor:
        """The peak (α − 1)/(α + β − 2), on [-1, 1]; the middle where the density is flat."""
        left, right = (part + torch.finfo(features.dtype).tiny for part in features.chunk(2, dim=-1))
        return (left - right) / (left + right)

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """x = g/(g + h) of two gamma draws, cut to ±(1 − 1e-5): on the edge itself the density is 0."""
        gammas = torch._standard_gamma(1.0 + features.cpu(), generator=rng).to(features)
        left, right = gammas.chunk(2, dim=-1)
        return ((left - right) / (left + right)).clamp(-ACTION_LIMIT, ACTION_LIMIT)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        left, right = features.double().chunk(2, dim=-1)
        inside = action.clamp(-ACTION_LIMIT, ACTION_LIMIT).double()
        log_x, log_rest = torch.log1p(inside) - LOG_2, torch.log1p(-inside) - LOG_2
        density = left * log_x + right * log_rest - _log_beta(left, right) - LOG_2
        return density.sum(-1).to(features.dtype)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.mode(self.features(outputs))

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(self.features(outputs), action)

    def entropy(self, features: Tensor) -> Tensor:
        left, right = features.double().chunk(2, dim=-1)
        alpha, beta = 1.0 + left, 1.0 + right
        pull = left * torch.digamma(alpha) + right * torch.digamma(beta)
        spread = _log_beta(left, right) - pull + (left + right) * torch.digamma(alpha + beta) + LOG_2
        return spread.sum(-1).to(features.dtype)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) [...]; stretching both to [-1, 1] changes nothing."""
        (old_left, old_right), (left, right) = old.double().chunk(2, dim=-1), new.double().chunk(2, dim=-1)
        total = torch.digamma(2.0 + old_left + old_right)
        pulls = (old_left - left) * (torch.digamma(1.0 + old_left) - total)
        pulls = pulls + (old_right - right) * (torch.digamma(1.0 + old_right) - total)
        return (_log_beta(left, right) - _log_beta(old_left, old_right) + pulls).sum(-1).to(new.dtype)


def _log_beta(left: Tensor, right: Tensor) -> Tensor:
    """log B(1 + left, 1 + right)."""
    return torch.lgamma(1.0 + left) + torch.lgamma(1.0 + right) - torch.lgamma(2.0 + left + right)
