"""Action distributions over [-1, 1]^A, made from the last layer of a trunk."""

import math
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HeadName = Literal["gaussian", "squashed", "deterministic"]
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
ACTION_LIMIT = 1.0 - 1e-5
"""Actions are cut to this before atanh: atanh(1 − 1e-5) = 6.1, and 1 − 1e-8 is 1 in float32."""
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Head(Protocol):
    """`outputs` says how wide the trunk's last layer must be."""

    outputs: int

    def mode(self, features: Tensor) -> Tensor: ...

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor: ...

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor: ...


def normal_log_density(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(x; μ, σ) per dimension [B, A]."""
    return -0.5 * ((value - mean) * torch.exp(-log_std)).square() - log_std - HALF_LOG_2PI


def tanh_log_slope(pre_tanh: Tensor) -> Tensor:
    """log(1 − tanh²u) per dimension, exact where `log(1 − a² + ε)` is wrong by nats."""
    return 2.0 * (math.log(2.0) - pre_tanh - F.softplus(-2.0 * pre_tanh))


class TanhMeanGaussian(nn.Module):
    """N(tanh(f(s)), diag σ²) with a state-independent log σ; no squash correction; samples cut to the box."""

    def __init__(self, action_size: int) -> None:
        super().__init__()
        self.outputs = action_size
        self.log_std = nn.Parameter(torch.zeros(action_size))

    def mode(self, features: Tensor) -> Tensor:
        return torch.tanh(features)

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        noise = torch.randn(features.shape, generator=rng).to(features.device)
        return (self.mode(features) + self._clipped_log_std().exp() * noise).clamp(-1.0, 1.0)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) [B]."""
        return normal_log_density(action, self.mode(features), self._clipped_log_std()).sum(-1)

    def entropy(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """Of the Gaussian [B], before its samples are cut."""
        spread = self._clipped_log_std() + 0.5 * math.log(2.0 * math.pi * math.e)
        return spread.sum().expand(len(features))

    def _clipped_log_std(self) -> Tensor:
        return self.log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


class SquashedGaussian(nn.Module):
    """a = tanh(u), u ~ N(μ(s), σ(s)²), with the exact change of variables."""

    def __init__(self, action_size: int) -> None:
        super().__init__()
        self.outputs = 2 * action_size

    def mode(self, features: Tensor) -> Tensor:
        return torch.tanh(features.chunk(2, dim=-1)[0])

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        mean, log_std = self.gaussian(features)
        noise = torch.randn(mean.shape, generator=rng).to(mean.device)
        return torch.tanh(mean + log_std.exp() * noise)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) [B]."""
        mean, log_std = self.gaussian(features)
        pre_tanh = torch.atanh(action.clamp(-ACTION_LIMIT, ACTION_LIMIT))
        return (normal_log_density(pre_tanh, mean, log_std) - tanh_log_slope(pre_tanh)).sum(-1)

    def entropy(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """−log π(a|s) [B] of one sampled action each: it has no closed form."""
        mean, _ = self.gaussian(features)
        _, log_prob = self.draw(features, torch.randn(mean.shape, generator=rng).to(mean.device))
        return -log_prob

    @staticmethod
    def draw(features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, B, A] and log π [N, B] from unit normal noise [N, B, A], both with gradient; or without N."""
        mean, log_std = SquashedGaussian.gaussian(features)
        pre_tanh = mean + log_std.exp() * noise
        log_density = -0.5 * noise.square() - log_std - HALF_LOG_2PI
        return torch.tanh(pre_tanh), (log_density - tanh_log_slope(pre_tanh)).sum(-1)

    @staticmethod
    def gaussian(features: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ [B, A] before the tanh."""
        mean, log_std = features.chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


class Deterministic(nn.Module):
    """a = tanh(f(s)). Its log-probability is −‖π(s) − a‖² [B]: a fixed-σ Gaussian up to a constant."""

    def __init__(self, action_size: int) -> None:
        super().__init__()
        self.outputs = action_size

    def mode(self, features: Tensor) -> Tensor:
        return torch.tanh(features)

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        return self.mode(features)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        return -(self.mode(features) - action).square().sum(-1)


class Categorical(nn.Module):
    """One of K actions, by logits. Forbidden ones have the lowest finite logit and are never chosen."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.outputs = count

    def mode(self, features: Tensor) -> Tensor:
        return features.argmax(-1)

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """Gumbel-max: argmax of logits plus −log of an exponential draw."""
        draws = torch.empty(features.shape).exponential_(generator=rng).to(features.device)
        return (torch.log_softmax(features, -1) - draws.log()).argmax(-1)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) [B] of whole numbers [B]."""
        return torch.log_softmax(features, -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """−Σ π log π [B]; an action of probability 0 adds nothing."""
        log_probs = torch.log_softmax(features, -1)
        return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits [B, K] with the lowest finite number where `mask` [B, K] is False: probability exactly 0, no NaN."""
    return torch.where(mask, logits, torch.finfo(logits.dtype).min)


HEADS: dict[HeadName, type[TanhMeanGaussian] | type[SquashedGaussian] | type[Deterministic]] = {
    "gaussian": TanhMeanGaussian,
    "squashed": SquashedGaussian,
    "deterministic": Deterministic,
}
