"""Distributions over choices: one of K, or one of each of several factors, among what a mask allows."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from understudy.core.errors import ConfigError


class Categorical(nn.Module):
    """One of K, by logits. Features [..., K] are logits, with the lowest finite number where the mask forbids; such a
    choice is never made. Actions [...] are whole numbers."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.outputs = count

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return outputs if mask is None else forbid(outputs, mask)

    def mode(self, features: Tensor) -> Tensor:
        return features.argmax(-1)

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """Gumbel-max: argmax of logits plus −log of an exponential draw."""
        draws = torch.empty(features.shape).exponential_(generator=rng).to(features.device)
        return (torch.log_softmax(features, -1) - draws.log()).argmax(-1)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) [...] of whole numbers [...]."""
        return torch.log_softmax(features, -1).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, features: Tensor) -> Tensor:
        """−Σ π log π [...]; an action of probability 0 adds nothing."""
        log_probs = torch.log_softmax(features, -1)
        return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return choice_kl(old, new)

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.mode(self.features(outputs, mask))

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(self.features(outputs, mask), action)


class MultiCategorical(nn.Module):
    """One of each of several factors, drawn independently of each other: `counts` (3, 2) has actions [..., 2].

    Features, and masks, hold the factors side by side [..., 3 + 2]; a mask forbids within each factor.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        if not counts or min(counts) < 1:
            raise ConfigError(
                "action space", "a factor has no actions", got=list(counts), expected="counts of at least 1"
            )
        self.counts = list(counts)
        self.outputs = sum(counts)
        self.factor = Categorical(max(counts))

    def features(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return outputs if mask is None else forbid(outputs, mask)

    def mode(self, features: Tensor) -> Tensor:
        return torch.stack([part.argmax(-1) for part in self._parts(features)], dim=-1)

    def sample(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        return torch.stack([self.factor.sample(part, rng) for part in self._parts(features)], dim=-1)

    def log_prob(self, features: Tensor, action: Tensor) -> Tensor:
        chosen = zip(self._parts(features), action.long().unbind(-1), strict=True)
        return _total([self.factor.log_prob(part, choice) for part, choice in chosen])

    def entropy(self, features: Tensor) -> Tensor:
        return _total([self.factor.entropy(part) for part in self._parts(features)])

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return _total([choice_kl(*pair) for pair in zip(self._parts(old), self._parts(new), strict=True)])

    def greedy(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.mode(self.features(outputs, mask))

    def log_likelihood(self, outputs: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.log_prob(self.features(outputs, mask), action)

    def _parts(self, features: Tensor) -> tuple[Tensor, ...]:
        return torch.split(features, self.counts, dim=-1)


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits [..., K] with the lowest finite number where `mask` is False: probability exactly 0, no NaN."""
    return torch.where(mask, logits, torch.finfo(logits.dtype).min)


def choice_kl(old: Tensor, new: Tensor) -> Tensor:
    """KL(old ‖ new) [...] of logits [..., K]; what both forbid adds nothing."""
    lowest = torch.finfo(new.dtype).min
    before, now = (torch.log_softmax(logits, -1).clamp_min(lowest) for logits in (old, new))
    return (before.exp() * (before - now)).sum(-1)


def _total(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)
