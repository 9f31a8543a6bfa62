"""The leave-one-out score of least-squares ratios, for all left-out pairs at once and without refitting.

Taking row x_i (of mass ρ_i) and row y_i away changes the system by two rank-one terms,

    H + λI  →  s·(B − UUᵀ),   B = H + λ/s·I,   U = [√(a·ρ_i)·φ(x_i), √((1−a)/m)·φ(y_i)],   s = m/(m−1)
    h       →  (h − ρ_i·φ(x_i))/(1 − ρ_i)

so that a 2 × 2 inverse for each pair is all that is needed. Exact for a = 0, and for a > 0 where both samples have the
same number of rows and equal mass; otherwise s is 1/n off in the x-term. With a = 0 it is the published formula with
the division in both of its terms, which public packages leave out of one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LeftOut:
    """The pairs: φ(x_i) [k, c], φ(y_i) [k, c], ρ_i [k], and how many rows the denominator has."""

    above: Tensor
    below: Tensor
    mass: Tensor
    rows_below: int


def leave_one_out(pairs: LeftOut, square: Tensor, mean: Tensor, ridge: float, mixing: float) -> float:
    """Σ_i of a/2·r(x_i)² + (1−a)/2·r(y_i)² − r(x_i), each r fitted without pair i, weighed by ρ_i where x is asked."""
    theta = thetas_without(pairs, square, mean, ridge, mixing)
    above, below = (pairs.above * theta).sum(1), (pairs.below * theta).sum(1)
    mass = pairs.mass / pairs.mass.sum()
    return float(mass @ (mixing / 2 * above.square() - above) + (1 - mixing) / 2 * below.square().mean())


def thetas_without(pairs: LeftOut, square: Tensor, mean: Tensor, ridge: float, mixing: float) -> Tensor:
    """θ [k, c] fitted without pair i, for every i. square: H [c, c], mean: h [c]."""
    rows = pairs.rows_below
    growth = rows / (rows - 1)
    system = square + ridge / growth * torch.eye(len(mean), dtype=mean.dtype)
    target = (mean - pairs.mass[:, None] * pairs.above) / (1 - pairs.mass[:, None])
    first = (mixing * pairs.mass).sqrt()[:, None] * pairs.above
    second = ((1 - mixing) / rows) ** 0.5 * pairs.below
    solved: Tensor = torch.linalg.solve(system, torch.cat([target, first, second]).T).T
    plain, along_first, along_second = solved.chunk(3)
    # the 2 × 2 system (I − UᵀB⁻¹U)·c = UᵀB⁻¹h, solved by hand for every pair
    one, two = 1 - (first * along_first).sum(1), 1 - (second * along_second).sum(1)
    cross = (first * along_second).sum(1)
    pull_first, pull_second = (first * plain).sum(1), (second * plain).sum(1)
    determinant = one * two - cross.square()
    weight_first = (two * pull_first + cross * pull_second) / determinant
    weight_second = (one * pull_second + cross * pull_first) / determinant
    theta: Tensor = plain + weight_first[:, None] * along_first + weight_second[:, None] * along_second
    return (theta / growth).clamp(min=0)
