"""Which rows of a batch to learn from, and how much each counts: co-teaching's selection, without any gradient."""

import math

import torch
from torch import Tensor

from understudy.core.checks import check_no_gradient, check_same_shape
from understudy.core.ranks import across, own, whole

ROUNDING = 1e-9
"""0.29·100 is 28.999… in floating point, and means 29 rows."""


def keep_count(rate: float | Tensor, rows: int | Tensor, smallest: int = 1) -> Tensor:
    """k [] = ⌊R·n⌋ of n rows, at least `smallest`, at most all of them."""
    wanted = torch.as_tensor(rate, dtype=torch.float64) * rows
    return torch.floor(wanted + ROUNDING).clamp(min=smallest).clamp(max=rows).long()


def best_rows(score: Tensor, count: Tensor) -> Tensor:
    """[B], true for the k rows of the highest score [B]; of equal ones the first.

    Nothing sensible comes of scores that are not finite. Whoever has them has losses that are not finite either, which
    ends a run at its next log (`run.guard`); looking here would cost every update.
    """
    check_no_gradient(score=score)
    order = torch.argsort(score, descending=True, stable=True)
    wanted = torch.arange(len(score), device=score.device) < count.to(score.device)
    return torch.zeros_like(wanted).scatter(0, order, wanted)


def best_among(score: Tensor, eligible: Tensor, count: Tensor) -> Tensor:
    """As `best_rows`, from the eligible rows [B] alone, however low they score."""
    lowest = score.amin() - 1.0
    return best_rows(torch.where(eligible, score, lowest - lowest.abs()), count)


def standard_score(values: Tensor) -> Tensor:
    """z [B] = (x − mean)/deviation; 0 where all are alike."""
    centred = values - values.mean()
    deviation = centred.square().mean().sqrt()
    noise = 8.0 * torch.finfo(values.dtype).eps * values.abs().amax()  # what rounding makes of equal numbers
    return torch.where(deviation > noise, centred / deviation.clamp(min=torch.finfo(values.dtype).tiny), 0.0)


def value_disagreement(first: Tensor, second: Tensor) -> Tensor:
    """u [B] = |min_j Q_aj(s,a) − min_j Q_bj(s,a)| of two learners' values [K, B]: how unsure both are together."""
    check_no_gradient(first=first, second=second)
    check_same_shape(first=first, second=second)
    return (first.amin(0) - second.amin(0)).abs()


def confidence_weights(log_prob: Tensor, power: float, bound: float, factors: Tensor | None = None) -> Tensor:
    """ω [B] ∝ exp(−κ·z(log π(a|s))), between 1/bound and bound before they are scaled to average 1.

    κ above 0 raises rows of which a policy is least sure, below 0 those of which it is surest; κ = 0 is 1, exactly. The
    average is that over rows as they count by `factors` [B] (`row_factors`), so that the whole term weighs the same.
    """
    check_no_gradient(log_prob=log_prob)
    limit = math.log(bound)
    raw = torch.exp((-power * own(standard_score(whole(log_prob)))).clamp(-limit, limit))
    mean = across(raw.mean() if factors is None else (factors * raw).mean())
    return raw / mean.clamp(min=torch.finfo(raw.dtype).tiny)


def row_factors(chosen: Tensor | None, importance: Tensor | None, valid: Tensor | None = None) -> Tensor | None:
    """What each row's loss [B] is multiplied with before the plain mean: 0 where not chosen, averaging 1.

    With `valid` [B] the mean is that over valid rows (`losses.value.mean_over`). None where every row counts alike; and
    all alike, by whatever constant, is 1 exactly.
    """
    if chosen is None and importance is None:
        return None
    named = {"chosen": chosen, "importance": importance, "valid": valid}
    given = {name: part for name, part in named.items() if part is not None}
    check_same_shape(**given)
    mass = torch.ones_like(next(iter(given.values())), dtype=torch.float32)
    if importance is not None:
        largest = whole(importance).amax().clamp(min=torch.finfo(torch.float32).tiny)
        mass = importance.float() / largest  # equal ones become 1
    if chosen is not None:
        mass = mass * chosen
    if valid is None:
        mean = across(mass.mean())
    else:
        mass = torch.where(valid, mass, 0.0)
        mean = across(mass.sum()) / across(valid.sum()).clamp(min=torch.finfo(mass.dtype).tiny)
    return mass / mean.clamp(min=torch.finfo(mass.dtype).tiny)


def overlap(left: Tensor, right: Tensor) -> Tensor:
    """|A ∩ B|/k [] of two choices [B] of k rows each: 1 where both chose the same."""
    check_same_shape(left=left, right=right)
    return (left & right).sum() / left.sum().clamp(min=1)
