"""Gaussians. Their parameter is log σ, between two limits: σ can never reach 0.

An unbounded Gaussian knows nothing of the box: the action that is stored, and its log-probability, are of the draw as
it was; only what is sent to the environment is cut. A density of the cut action would have atoms on the edge.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ACTION_LIMIT = 1.0 - 1e-5
"""Actions are cut to this before atanh: atanh(1 − 1e-5) = 6.1, and 1 − 1e-8 is 1 in float32."""
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
UNIT_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)
"""Of N(0, 1)."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
"""Where and how much: E f(z) ≈ Σ wᵢ f(zᵢ)/√2π of a unit normal z, exact for polynomials up to degree 23."""


def normal_log_density(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(x; μ, σ) per dimension [..., A]."""
    return -0.5 * ((value - mean) * torch.exp(-log_std)).square() - log_std - HALF_LOG_2PI


def tanh_log_slope(pre_tanh: Tensor) -> Tensor:
    """log(1 − tanh²u) per dimension, exact where `log(1 − a² + ε)` is wrong by nats."""
    return 2.0 * (math.log(2.0) - pre_tanh - F.softplus(-2.0 * pre_tanh))


class Limits(NamedTuple):
    """Of log σ."""

    low: float = -5.0
    high: float = 2.0
    returning: bool = True
    """Beyond them a gradient that leads back inside passes; otherwise none does."""

    def hold(self, log_std: Tensor) -> Tensor:
        return (clamp_with_gradient if self.returning else torch.clamp)(log_std, self.low, self.high)


DEFAULT_LIMITS = Limits()


class _Held(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, low: float, high: float) -> Tensor:
        inside = values.clamp(low, high)
        ctx.save_for_backward(values - inside)
        return inside

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (outside,) = ctx.saved_tensors
        return slope.masked_fill(outside * slope < 0, 0.0), None, None


def clamp_with_gradient(values: Tensor, low: float, high: float) -> Tensor:
    """`clamp`, except that a gradient that leads back inside passes: what has crossed a limit is not stuck there."""
    if not torch.is_grad_enabled():
        return values.clamp(low, high)
    result: Tensor = _Held.apply(values, low, high)  # type: ignore[no-untyped-call]
    return result


class Deviation(NamedTuple):
    """How far actions [..., A] are from a mean, in units of σ."""

    error: Tensor
    """z = (a − μ)/σ."""
    squared: Tensor
    precision: Tensor
    """1/σ."""
    log_prob: Tensor
    """[...]."""


def deviation(mean: Tensor, log_std: Tensor, action: Tensor, half_log_2pi: float = HALF_LOG_2PI) -> Deviation:
    """Of actions from a Gaussian's mean, in no graph; like `deviation_slopes` it can be compiled by TorchScript."""
    precision = torch.exp(-log_std)
    error = (action - mean).mul_(precision)
    squared = error.square()
    log_prob = squared.mul(0.5).add_(log_std).sum(-1).neg_().sub_(mean.shape[-1] * half_log_2pi)
    return Deviation(error, squared, precision, log_prob)


def deviation_slopes(found: Deviation, slope: Tensor, entropy_coef: float) -> tuple[Tensor, Tensor]:
    """∂/∂μ [B, A] and ∂/∂log σ [A] of a loss less some entropy, from its slope in log-probabilities [B]."""
    to_log_std = torch.mv(found.squared.mT, slope).sub_(slope.sum() + entropy_coef)
    return (found.error * found.precision).mul_(slope.unsqueeze(-1)), to_log_std


def clamp_gradient(slope: Tensor, values: Tensor, inside: Tensor) -> Tensor:
    """A gradient at values of which only the part inside limits counts: 0 where it leads further out."""
    return slope.masked_fill((values - inside) * slope < 0, 0.0)


def total_entropy(log_std: Tensor, unit: float = UNIT_ENTROPY) -> Tensor:
    """Of a Gaussian whose σ is the same in every state []."""
    return log_std.sum() + len(log_std) * unit


class _NormalLogProb(torch.autograd.Function):
    """One node for what would be twenty: ∂/∂μ = z/σ and ∂/∂log σ = z² − 1, where z = (a − μ)/σ."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        error, squared, precision, log_prob = deviation(mean, log_std, action)
        ctx.save_for_backward(error, precision, squared)
        return log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        error, precision, squared = ctx.saved_tensors
        slopes = slope.unsqueeze(-1)
        wider = (squared - 1.0).mul_(slopes)
        wider = wider.flatten(0, -2).sum(0) if precision.dim() == 1 else wider
        return (error * precision).mul_(slopes), wider, None


def normal_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log N(a; μ, diag σ²) [...] of given actions [..., A], which get no gradient; log σ is [..., A], or [A] of all."""
    if torch.compiler.is_compiling():
        return normal_log_density(action.detach(), mean, log_std).sum(-1)
    if not torch.is_grad_enabled():
        return deviation(mean, log_std, action).log_prob
    result: Tensor = _NormalLogProb.apply(mean, log_std, action.detach())  # type: ignore[no-untyped-call]
    return result


class Gaussian(nn.Module):
    """N(μ(s), diag σ²), σ the same in every state. Features [..., 2A] are μ and log σ."""

    def __init__(self, action_size: int, initial_std: float = 1.0, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.outputs = action_size
        self.limits = limits
        self.log_std = nn.Parameter(torch.full((action_size,), math.log(initial_std)))

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.cat([outputs, self.limits.hold(self.log_std).expand_as(outputs)], dim=-1)

    def mode(self, features: Tensor) -> Tensor:
        return features.chunk(2, dim=-1)[0]

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """As it comes [..., A], inside the box or not."""
        return _normal_sample(features, rng)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        mean, log_std = features.chunk(2, dim=-1)
        return normal_log_prob(mean, log_std, action)

    def entropy(self, features: Tensor) -> Tensor:
        return _normal_entropy(features)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return normal_kl(old, new)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return outputs

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return normal_log_prob(outputs, self.limits.hold(self.log_std), action)

    def evaluate(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability, entropy and features as the other methods make them, to the bit; but the gradient goes to
        one σ, not to each row's."""
        log_std = self.limits.hold(self.log_std)
        entropy = total_entropy(log_std).expand(outputs.shape[:-1])
        features = torch.cat([outputs, log_std.expand_as(outputs)], dim=-1)
        return normal_log_prob(outputs, log_std, action), entropy, features

    def draw(self, outputs: Tensor, rng: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """`sample` and its `log_prob`, to the bit, without features in between. In no graph."""
        log_std = self.log_std.clamp(self.limits.low, self.limits.high)
        action = outputs + log_std.exp() * torch.randn(outputs.shape, generator=rng).to(outputs)
        return action, deviation(outputs, log_std, action).log_prob


class TanhMeanGaussian(nn.Module):
    """N(tanh f(s), diag σ²), σ the same in every state; no squash correction. Features [..., 2A] are mean and log σ."""

    def __init__(self, action_size: int, initial_std: float = 1.0, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.outputs = action_size
        self.limits = limits
        self.log_std = nn.Parameter(torch.full((action_size,), math.log(initial_std)))

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.cat([torch.tanh(outputs), self.limits.hold(self.log_std).expand_as(outputs)], dim=-1)

    def mode(self, features: Tensor) -> Tensor:
        return features.chunk(2, dim=-1)[0]

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """As it comes [..., A]: what is sent to the environment is cut to the box, the density is of the draw."""
        return _normal_sample(features, rng)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        mean, log_std = features.chunk(2, dim=-1)
        return normal_log_density(action, mean, log_std).sum(-1)

    def entropy(self, features: Tensor) -> Tensor:
        """Of the Gaussian, before its draws are cut."""
        return _normal_entropy(features)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return normal_kl(old, new)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.tanh(outputs)

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return normal_log_density(action, torch.tanh(outputs), self.limits.hold(self.log_std)).sum(-1)


class StateGaussian(nn.Module):
    """N(μ(s), diag σ(s)²). Features [..., 2A] are μ and log σ; a trunk that says 0 says the initial σ."""

    def __init__(self, action_size: int, initial_std: float = 1.0, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.outputs = 2 * action_size
        self.limits = limits
        self.start = math.log(initial_std)

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        mean, log_std = outputs.chunk(2, dim=-1)
        return torch.cat([mean, self.limits.hold(log_std + self.start)], dim=-1)

    def mode(self, features: Tensor) -> Tensor:
        return features.chunk(2, dim=-1)[0]

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """As it comes [..., A], inside the box or not."""
        return _normal_sample(features, rng)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        mean, log_std = features.chunk(2, dim=-1)
        return normal_log_prob(mean, log_std, action)

    def entropy(self, features: Tensor) -> Tensor:
        return _normal_entropy(features)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return normal_kl(old, new)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.mode(outputs)

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(self.features(outputs), action)


class TanhGaussian(nn.Module):
    """a = tanh(u), u ~ N(μ(s), diag σ(s)²), with the exact change of variables.

    Features [..., 2A] are μ and log σ of u. Draws are cut to ±(1 − 1e-5), so that atanh finds u again; all densities
    are of the cut action, old and new alike.
    """

    def __init__(self, action_size: int, initial_std: float = 1.0, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.inside = StateGaussian(action_size, initial_std, limits)
        self.outputs = self.inside.outputs

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.inside.features(outputs)

    def mode(self, features: Tensor) -> Tensor:
        """The squashed mean: the median, which unlike the highest density is inside the box for every σ."""
        return torch.tanh(self.inside.mode(features))

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        return torch.tanh(self.inside.sample(features, rng)).clamp(-ACTION_LIMIT, ACTION_LIMIT)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        pre_tanh = torch.atanh(action.clamp(-ACTION_LIMIT, ACTION_LIMIT))
        mean, log_std = features.chunk(2, dim=-1)
        return normal_log_prob(mean, log_std, pre_tanh) - tanh_log_slope(pre_tanh).sum(-1)

    def entropy(self, features: Tensor) -> Tensor:
        """H(u) + E log(1 − tanh²u) per dimension, the expectation as a sum over 12 nodes: it has no closed form.

        Right to 1e-4 nats up to σ = 1, to 0.01 at σ = 2 and to 0.05 at σ = 3; no draws, so nothing to be repeated.
        """
        mean, log_std = features.chunk(2, dim=-1)
        nodes, weights = (torch.as_tensor(part).to(mean).view(-1, *[1] * mean.dim()) for part in (NODES, WEIGHTS))
        squeeze = (weights * tanh_log_slope(mean + nodes * log_std.exp())).sum(0) / math.sqrt(2.0 * math.pi)
        return (log_std + UNIT_ENTROPY + squeeze).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """That of the Gaussians inside: a bijection changes nothing."""
        return normal_kl(old, new)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.tanh(self.inside.greedy(outputs))

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(self.features(outputs), action)

    @staticmethod
    def draw(features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, B, A] and log π [N, B] from unit normal noise [N, B, A], both with gradient; or without N."""
        mean, log_std = features.chunk(2, dim=-1)
        pre_tanh = mean + log_std.exp() * noise
        log_density = -0.5 * noise.square() - log_std - HALF_LOG_2PI
        return torch.tanh(pre_tanh), (log_density - tanh_log_slope(pre_tanh)).sum(-1)


class Deterministic(nn.Module):
    """a = tanh f(s): features [..., A] are the action. Its log-probability is −‖π(s) − a‖² [...], that of a Gaussian
    of fixed σ up to a constant; as a point it has an entropy of −∞."""

    def __init__(self, action_size: int) -> None:
        super().__init__()
        self.outputs = action_size

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.tanh(outputs)

    def mode(self, features: Tensor) -> Tensor:
        return features

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        return features

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        return -(features - action).square().sum(-1)

    def entropy(self, features: Tensor) -> Tensor:
        return torch.full_like(features[..., 0], -torch.inf)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """0 where the points are one, ∞ where they are two."""
        return torch.where((old == new).all(-1), 0.0, torch.inf)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.tanh(outputs)

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(self.features(outputs), action)


def normal_kl(old: Tensor, new: Tensor) -> Tensor:
    """KL(old ‖ new) [...] of features [..., 2A] of diagonal Gaussians."""
    (old_mean, old_log_std), (mean, log_std) = old.chunk(2, dim=-1), new.chunk(2, dim=-1)
    narrower = old_log_std - log_std
    apart = (old_mean - mean) * torch.exp(-log_std)
    return (0.5 * ((2.0 * narrower).exp() + apart.square() - 1.0) - narrower).sum(-1)


def _normal_sample(features: Tensor, rng: torch.Generator | None) -> Tensor:
    mean, log_std = features.chunk(2, dim=-1)
    return mean + log_std.exp() * torch.randn(mean.shape, generator=rng).to(mean)


def _normal_entropy(features: Tensor) -> Tensor:
    return (features.chunk(2, dim=-1)[1] + UNIT_ENTROPY).sum(-1)
