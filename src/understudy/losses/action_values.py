"""Values of discrete actions: which are legal, which is best, what a policy expects of them.

Masks [B, A] are True where an action is legal; None means that all are. Nothing illegal is ever chosen or counted.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.losses.quantile import least_member


def legal_or_all(mask: Tensor) -> Tensor:
    """The mask [B, A], all True in rows without a legal action: what follows a terminal step does not matter there."""
    return mask | ~mask.any(-1, keepdim=True)


def best_action(q: Tensor, mask: Tensor | None = None) -> Tensor:
    """argmax over the legal of Q [B, A] → [B]."""
    if mask is not None:
        check_same_shape(q=q, mask=mask)
        q = torch.where(mask, q, torch.finfo(q.dtype).min)
    return q.argmax(-1)


def taken(values: Tensor, action: Tensor) -> Tensor:
    """What belongs to the actions [B] among all: [K, B, A] → [K, B], and [K, B, A, M] → [K, B, M]."""
    check_same_shape(value=values[0, :, 0, 0] if values.ndim == 4 else values[0, :, 0], action=action)
    index = action.view(1, -1, *[1] * (values.ndim - 2)).expand(len(values), -1, 1, *values.shape[3:])
    return values.gather(2, index).squeeze(2)


def double_dqn_value(q: Tensor, outcomes: Tensor, mask: Tensor | None = None) -> Tensor:
    """min_j Q̄_j(s', a*) [B, M], where a* is the best legal action by Q [K, B, A] on average.

    The target critics' outcomes [K, B, A, M] are M quantiles each, or one value; the member that expects least counts.
    """
    check_same_shape(q=q, outcomes=outcomes[..., 0])
    return least_member(taken(outcomes, best_action(q.mean(0), mask)))


def expected_value(logits: Tensor, q: Tensor) -> Tensor:
    """Σ_a π(a|s)·Q(s,a) [B], π = softmax of logits [B, A] in which illegal actions have the lowest finite number."""
    check_same_shape(logits=logits, q=q)
    return (torch.softmax(logits, -1) * q).sum(-1)


def entropy(logits: Tensor) -> Tensor:
    """H(π) [B] = −Σ_a π(a|s)·log π(a|s); what is illegal adds exactly 0."""
    log_prob = torch.log_softmax(logits, -1)
    return -(log_prob.exp() * log_prob).sum(-1)


def softmax_climb(logits: Tensor, q: Tensor, entropy_weight: float | Tensor) -> Tensor:
    """−Σ_a π(a|s)·Q(s,a) − η·H(π) [B]: a policy climbs values exactly, without drawing. Best where π = softmax(Q/η)."""
    check_no_gradient(q=q)
    return -expected_value(logits, q) - entropy_weight * entropy(logits)


def soft_expected_value(logits: Tensor, q: Tensor, entropy_weight: float | Tensor) -> Tensor:
    """Σ_a π(a|s)·(Q(s,a) − η·log π(a|s)) [B]: what a state is worth to a policy that is paid for its entropy.

    At most η·log Σ_a exp(Q(s,a)/η) over the legal, where π = softmax(Q/η).
    """
    return expected_value(logits, q) + entropy_weight * entropy(logits)


def entropy_of_choices(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """The most entropy there can be in each state [B]: the logarithm of the number of legal actions, of A [B, A]; 0
    where there is one."""
    if mask is None:
        return torch.full_like(logits[:, 0], math.log(logits.shape[-1]))
    check_same_shape(logits=logits, mask=mask)
    return mask.sum(-1).to(logits).log()


class OtherActions(NamedTuple):
    """Actions beside those that were taken, drawn uniformly from the legal ones without replacement."""

    action: Tensor
    """[N, B]."""
    drawn: Tensor
    """[N, B]: False where a row had fewer than N to draw from; what `action` says there means nothing."""
    choices: Tensor
    """[B]: legal actions in all, the one taken included."""


def draw_others(keys: Tensor, action: Tensor, mask: Tensor | None, count: int) -> OtherActions:
    """The `count` other legal actions with the largest of random keys [B, A], which are above −2."""
    check_same_shape(key=keys[:, 0], action=action)
    legal = torch.ones_like(keys, dtype=torch.bool) if mask is None else mask
    check_same_shape(keys=keys, mask=legal)
    others = legal.scatter(1, action.unsqueeze(1), False)
    most = max(keys.shape[1] - 1, 1)  # a single action has no other: one is named, and not drawn
    best = torch.where(others, keys, -2.0).topk(min(count, most), dim=1)
    return OtherActions(best.indices.mT, best.values.mT > -2.0, others.sum(1) + 1)
