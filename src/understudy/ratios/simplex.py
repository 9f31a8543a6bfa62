"""Mixture weights of greatest likelihood: max Σ_i ρ_i·log(Bβ)_i over the simplex, with a proof of how far off it is.

For any β, the optimum is at most max_l g_l − 1 higher, g = Bᵀ(ρ/Bβ): the certificate (`gap`). Two solvers of the one
problem: `em` multiplies β by g, which needs no step size and never falls, but crawls near the end; `newton` follows the
central path of β·z = μ to the same point in about ten steps.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Solver = Literal["newton", "em"]

SHRINK = 0.1
"""How far below its present mean each step of `newton` aims with β·z."""
TO_BORDER = 0.995


@dataclass(frozen=True)
class Solution:
    """Mixture weights β [c] on the simplex."""

    mixture: Tensor
    slack: Tensor | None
    """Dual variables [c] of `newton`, from which a neighbouring problem can start."""
    objective: float
    gap: float
    """Proven: no mixture is better by more than this."""
    iterations: int


def solve(
    likelihoods: Tensor,
    mass: Tensor,
    *,
    tolerance: float,
    iterations: int,
    solver: Solver = "newton",
    start: Solution | None = None,
) -> Solution:
    """B [n, c] ≥ 0 without a row of zeros, ρ [n] with Σρ = 1. Stops at gap ≤ tolerance, or after `iterations`."""
    if solver == "newton":
        found = _newton(likelihoods, mass, tolerance, iterations, start)
        if found.gap <= tolerance or found.iterations >= iterations:
            return found
        start, iterations = found, iterations - found.iterations
    return _em(likelihoods, mass, tolerance, iterations, start)


def certificate(likelihoods: Tensor, mass: Tensor, mixture: Tensor) -> float:
    """max_l Σ_i ρ_i·B_il/(Bβ)_i − 1"""
    return float(_gradient(likelihoods, mass, mixture)[1].max()) - 1


def _gradient(likelihoods: Tensor, mass: Tensor, mixture: Tensor) -> tuple[Tensor, Tensor]:
    mixed = likelihoods @ mixture
    return mixed, likelihoods.T @ (mass / mixed)


def _em(likelihoods: Tensor, mass: Tensor, tolerance: float, iterations: int, start: Solution | None) -> Solution:
    mixture = _even(likelihoods) if start is None else start.mixture
    done = 0 if start is None else start.iterations
    for step in range(iterations + 1):
        mixed, gradient = _gradient(likelihoods, mass, mixture)
        gap = float(gradient.max()) - 1
        if gap <= tolerance or step == iterations:
            break
        mixture = mixture * gradient
        mixture = mixture / mixture.sum()
    return Solution(mixture, None, float(mass @ mixed.log()), gap, done + step)


def _newton(likelihoods: Tensor, mass: Tensor, tolerance: float, iterations: int, start: Solution | None) -> Solution:
    """Interior point. Leaves early, with what it has, where a step is no number; `solve` then goes on with `em`."""
    mixture = _even(likelihoods) if start is None else start.mixture
    slack = None if start is None else start.slack
    best, path = None, mixture
    for step in range(iterations + 1):
        total = path.sum()
        mixture = path / total
        mixed, gradient = _gradient(likelihoods, mass, mixture)
        if slack is None:
            slack = (1 - gradient).clamp(min=0) + 0.1
        gap = float(gradient.max()) - 1
        if best is None or gap < best.gap:
            best = Solution(mixture, slack, float(mass @ mixed.log()), gap, step)
        if gap <= tolerance or step == iterations:
            break
        moved = _step(likelihoods * (mass.sqrt() / (mixed * total))[:, None], gradient / total, path, slack)
        if moved is None:
            break
        path, slack = moved
    assert best is not None
    return Solution(best.mixture, best.slack, best.objective, best.gap, step)


def _step(scaled: Tensor, gradient: Tensor, path: Tensor, slack: Tensor) -> tuple[Tensor, Tensor] | None:
    """One step along the central path from β, z [c]: curvature is SᵀS of `scaled` S = √ρ·B/Bβ [n, c]."""
    goal = SHRINK * float(path @ slack) / len(path)
    root = path.sqrt()
    curvature = (scaled.T @ scaled) * root[:, None] * root[None, :]
    factor, failed = torch.linalg.cholesky_ex(curvature + torch.diag(slack))
    if int(failed):
        return None
    pull = root * (gradient - 1) + goal / root
    change = root * torch.cholesky_solve(pull[:, None], factor)[:, 0]
    slack_change = goal / path - slack - slack / path * change
    path = path + _longest(path, change) * change
    slack = slack + _longest(slack, slack_change) * slack_change
    inside = bool(torch.isfinite(path).all() & torch.isfinite(slack).all() & (path > 0).all() & (slack > 0).all())
    return (path, slack) if inside else None


def _longest(values: Tensor, change: Tensor) -> float:
    """The largest part of a step, at most 1, after which all values are still positive."""
    falling = change < 0
    if not bool(falling.any()):
        return 1.0
    return min(1.0, TO_BORDER * float((-values[falling] / change[falling]).min()))


def _even(likelihoods: Tensor) -> Tensor:
    count = likelihoods.shape[1]
    return torch.full((count,), 1 / count, dtype=likelihoods.dtype)
