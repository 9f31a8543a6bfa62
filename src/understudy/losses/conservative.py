"""Conservative penalties: how far critics rate other actions above those in the data.

Each is a gap per critic and row [K, B] that a critic loss adds, times a weight. Sampled actions lie on the axis
before the rows: [K, N, B].
"""

import math
from typing import Literal

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape

LagrangeForm = Literal["weight_outside", "weight_inside"]


def sampled_log_sum_exp(
    q: Tensor, log_density: Tensor, temperature: float = 1.0, *, subtract_log_n: bool = True
) -> Tensor:
    """T·log ∫ exp(Q(s,a)/T) da [K, B], from N actions [K, N, B] and the log-density [N, B] each was drawn with.

    T·[ logsumexp_i(Q_i/T − log q_i) − ln N ]: T divides Q alone, log q is a weight and no value. Leaving out ln N
    changes no gradient, only the number that is reported and that a Lagrange threshold is compared with.
    """
    check_no_gradient(log_density=log_density)
    check_same_shape(q=q[0], log_density=log_density)
    total = torch.logsumexp(q / temperature - log_density, dim=1)
    return temperature * (total - math.log(len(log_density)) if subtract_log_n else total)


def calibrated(q_sampled: Tensor, return_to_go: Tensor, uniform: int) -> Tensor:
    """Cal-QL's values of sampled actions [K, N, B]: max(Q, R), R [B] what was earned from the state on; −∞: not known.

    The first `uniform` of the N actions are not the policy's and stay as they are. A value that was cut has no slope,
    so that no penalty pushes it down.
    """
    check_no_gradient(return_to_go=return_to_go)
    check_same_shape(q_sampled=q_sampled[0, 0], return_to_go=return_to_go)
    return torch.cat([q_sampled[:, :uniform], torch.maximum(q_sampled[:, uniform:], return_to_go)], dim=1)


def cql_h_gap(
    q_sampled: Tensor,
    log_density: Tensor,
    q_data: Tensor,
    temperature: float = 1.0,
    *,
    subtract_log_n: bool = True,
) -> Tensor:
    """CQL(H) [K, B]: the importance-sampled log-sum-exp over all actions minus the value of the data's."""
    soft_maximum = sampled_log_sum_exp(q_sampled, log_density, temperature, subtract_log_n=subtract_log_n)
    check_same_shape(soft_maximum=soft_maximum, q_data=q_data)
    return soft_maximum - q_data


def cql_rho_gap(q_sampled: Tensor, q_data: Tensor, temperature: float = 1.0, *, subtract_log_n: bool = True) -> Tensor:
    """CQL(ρ) [K, B]: the same without densities, so that actions count as often as they are drawn.

    The data's action is among them; at least 0 without ln N.
    """
    check_same_shape(q_sampled=q_sampled[:, 0], q_data=q_data)
    logits = torch.cat([q_data.unsqueeze(1), q_sampled], dim=1) / temperature
    gap = -temperature * torch.log_softmax(logits, dim=1)[:, 0]
    return gap - temperature * math.log(logits.shape[1]) if subtract_log_n else gap


def exact_gap(q: Tensor, action: Tensor, mask: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """Discrete CQL(H) [K, B]: T·logsumexp over the legal of all actions [K, B, A] minus the value of the one taken [B].

    The cross-entropy of softmax(Q/T): never negative, blind to a constant added to Q, and on average over a dataset at
    least T times the entropy of its actions given its states. `mask` [B, A] is True where legal.
    """
    check_same_shape(q=q[0, :, 0], action=action)
    logits = q / temperature
    if mask is not None:
        check_same_shape(q=q[0], mask=mask)
        logits = torch.where(mask, logits, torch.finfo(q.dtype).min)
    chosen = action.expand(len(q), -1).unsqueeze(-1)
    return -temperature * torch.log_softmax(logits, dim=-1).gather(-1, chosen).squeeze(-1)


def sampled_gap(
    q_sampled: Tensor, q_data: Tensor, choices: Tensor, temperature: float = 1.0, drawn: Tensor | None = None
) -> Tensor:
    """`exact_gap` [K, B] estimated for many actions: T·log( e^{Q/T} + (C−1)/N·Σ_n e^{Q_n/T} ) − Q, never negative.

    The N others [K, N, B] are drawn uniformly without replacement from the C − 1 legal actions [B] beside the data's;
    exact when they are all of them. `drawn` [N, B] is False where a row had fewer than N to draw from.
    """
    check_same_shape(q_sampled=q_sampled[:, 0], q_data=q_data)
    check_same_shape(q_data=q_data[0], choices=choices)
    there = torch.ones_like(q_sampled[0], dtype=torch.bool) if drawn is None else drawn
    check_same_shape(q_sampled=q_sampled[0], drawn=there)
    stands_for = (choices - 1).clamp(min=1).to(q_data.dtype) / there.sum(0).clamp(min=1)
    others = torch.where(there, q_sampled / temperature + stands_for.log(), torch.finfo(q_data.dtype).min)
    logits = torch.cat([(q_data / temperature).unsqueeze(1), others], dim=1)
    return -temperature * torch.log_softmax(logits, dim=1)[:, 0]


def sampled_seed_gap(q_sampled: Tensor, q_data: Tensor) -> Tensor:
    """logsumexp_n Q_n − Q [K, B] over a few actions drawn with replacement: wrong, kept to reproduce others.

    Neither is the data's action among them nor does a draw stand for the actions not drawn, so the gap goes far below
    0 and rewards the data's action without limit. `exact_gap` and `sampled_gap` are the right ones.
    """
    check_same_shape(q_sampled=q_sampled[:, 0], q_data=q_data)
    return torch.logsumexp(q_sampled, dim=1) - q_data


def mean_gap(q_sampled: Tensor, q_data: Tensor) -> Tensor:
    """E_μ Q(s,·) − Q(s,a) [K, B]: linear in Q, so all actions are pushed down alike."""
    check_same_shape(q_sampled=q_sampled[:, 0], q_data=q_data)
    return q_sampled.mean(1) - q_data


def relu_mean(q_sampled: Tensor, q_data: Tensor) -> Tensor:
    """max(0, mean Q_n − mean Q) [K]: one number for a whole batch, without slope once the means have crossed."""
    check_same_shape(q_sampled=q_sampled[:, 0], q_data=q_data)
    return torch.relu(q_sampled.mean((1, 2)) - q_data.mean(1))


def constraint(gap: Tensor, weight: float, threshold: float, form: LagrangeForm) -> Tensor:
    """What a Lagrange multiplier is to hold at 0 [K, B]: α·(Δ − τ), or α·Δ − τ with the weight inside."""
    return weight * (gap - threshold) if form == "weight_outside" else weight * gap - threshold
