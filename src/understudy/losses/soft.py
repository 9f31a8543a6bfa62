"""Entropy-regularised control (SAC): what a policy climbs, what its temperature does, what a next state is worth."""

from typing import Literal

from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape

BackupOrder = Literal["max_min", "min_max"]


def soft_policy_loss(log_prob: Tensor, q: Tensor, alpha: float | Tensor) -> Tensor:
    """α·log π(ã|s) − Q(s,ã) [B] of actions drawn with gradient; α is a constant."""
    check_same_shape(log_prob=log_prob, q=q)
    if isinstance(alpha, Tensor):
        check_no_gradient(alpha=alpha)
    return alpha * log_prob - q


def soft_value(q: Tensor, log_prob: Tensor, alpha: float | Tensor) -> Tensor:
    """Q(s,ã) − α·log π(ã|s) [B]: what a state is worth to a policy that is paid for its entropy, by one draw."""
    check_same_shape(q=q, log_prob=log_prob)
    return q - alpha * log_prob


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float | Tensor) -> Tensor:
    """−log α·(log π + H̄) [B]: α rises while the policy's entropy −E log π is below H̄, which may be each row's own."""
    check_no_gradient(log_prob=log_prob)
    return -log_alpha * (log_prob + target_entropy)


def multiplier_loss(multiplier: Tensor, violation: Tensor) -> Tensor:
    """−λ·violation [K, B]: a Lagrange multiplier rises while its constraint is violated."""
    check_no_gradient(violation=violation)
    return -multiplier * violation


def cautious_value(q: Tensor, order: BackupOrder = "max_min") -> Tensor:
    """One number [B] from K critics and M actions [K, M, B]: pessimistic over critics, optimistic over actions.

    `max_min`: the best action by the smaller critic (CORL, young-geng). `min_max`: the smaller of the critics' own
    best (official CQL), never less. With one action both are the smaller critic.
    """
    return q.amin(0).amax(0) if order == "max_min" else q.amax(1).amin(0)


def drawn_members(lots: Tensor, count: int) -> Tensor:
    """Which `count` of N members have the largest lots [N]: every subset alike, where lots are drawn alike. [count]."""
    return lots.topk(count).indices
