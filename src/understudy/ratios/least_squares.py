"""uLSIF and RuLSIF: the ratio nearest the true one in squared error, solved by one linear system.

    θ = max(0, (H + λI)⁻¹h),   H = a·E_x[φφᵀ] + (1−a)·E_y[φφᵀ],   h = E_x[φ]

a = 0 is uLSIF. a > 0 fits the relative ratio r_a = w/(a·w + 1 − a), which is never above 1/a. Bandwidth and λ are those
of the least leave-one-out score, which needs no refit (`leave_one_out`). Kanamori et al. 2009, Yamada et al. 2011.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.rng import stream
from understudy.ratios.estimator import KernelEstimator, Positive, bandwidth_of
from understudy.ratios.fitted import KernelRatio, kernel_sum
from understudy.ratios.kernels import Kernel
from understudy.ratios.leave_one_out import LeftOut, leave_one_out
from understudy.ratios.problem import Problem, draw_centres, pose
from understudy.ratios.samples import CHUNK_ROWS, Rows


@dataclass(frozen=True)
class RidgeTrial:
    """How one bandwidth with one λ did on pairs it was not fitted on."""

    bandwidth: float | None
    ridge: float
    score: float
    """Squared error up to a constant: less is better."""


@dataclass(frozen=True)
class LeastSquaresFacts:
    """How a fit came about."""

    bandwidth: float | None
    ridge: float
    alpha: float
    trials: tuple[RidgeTrial, ...]
    """One for each pair of bandwidth and λ; none where there was nothing to choose."""
    centres_used: int
    """With a coefficient above 0."""
    denominator_mean: float
    """Mean estimate over the denominator: 1 for a perfect ratio; nothing enforces it here."""
    unreached: float
    """Share of the numerator far from every denominator row."""


class LeastSquares(KernelEstimator):
    """What uLSIF and RuLSIF share."""

    ridge: Literal["cv"] | Positive = "cv"
    """λ, chosen by its leave-one-out score or given."""
    ridges: tuple[Positive, ...] = Field((1e-3, 1e-2, 1e-1, 1.0), min_length=1)
    """What `cv` tries."""
    pairs: int = Field(2000, ge=2)
    """How many pairs of rows are left out, one after the other, for the score, at most."""

    def mixing(self) -> float:
        """a of the relative ratio."""
        return 0.0

    def fit(
        self, numerator: Rows, denominator: Rows, *, numerator_weights: Rows | None = None, seed: int = 0
    ) -> KernelRatio[LeastSquaresFacts]:
        """The ratio of numerator [n, d], whose rows may weigh [n], to denominator [m, d]."""
        problem = pose(
            numerator, denominator, numerator_weights, standardise=self.standardise, seed=seed, where=self.where()
        )
        centres = draw_centres(problem.numerator, problem.mass, self.centres, stream(seed, "ratio centres"))
        kernels = self.candidates(problem.distance, centres.shape[1])
        ridges = list(self.ridges) if self.ridge == "cv" else [self.ridge]
        systems = [System.of(problem, centres, kernel, self.mixing()) for kernel in kernels]
        if len(systems) * len(ridges) == 1:
            return self._fitted(problem, systems[0], ridges[0], ())
        pairs = draw_pairs(problem, self.pairs, stream(seed, "ratio pairs"))
        tried = [(system, ridge, self._trial(problem, system, ridge, pairs)) for system in systems for ridge in ridges]
        system, ridge, _ = min(tried, key=lambda candidate: candidate[2].score)
        return self._fitted(problem, system, ridge, tuple(trial for _, _, trial in tried))

    def _trial(self, problem: Problem, system: "System", ridge: float, pairs: tuple[Tensor, Tensor]) -> RidgeTrial:
        above, below = pairs
        left_out = LeftOut(
            above=system.kernel.matrix(problem.numerator[above], system.centres),
            below=system.kernel.matrix(problem.denominator[below], system.centres),
            mass=problem.mass[above],
            rows_below=len(problem.denominator),
        )
        score = leave_one_out(left_out, system.square, system.mean, ridge, self.mixing())
        return RidgeTrial(bandwidth_of(system.kernel), ridge, score)

    def _fitted(
        self, problem: Problem, system: "System", ridge: float, trials: tuple[RidgeTrial, ...]
    ) -> KernelRatio[LeastSquaresFacts]:
        theta = system.solve(ridge)
        ceiling = 1 / self.mixing() if self.mixing() else None
        pieces = torch.split(problem.denominator, CHUNK_ROWS)
        values = [kernel_sum(system.kernel, piece, system.centres, theta, ceiling) for piece in pieces]
        level = float(torch.cat(values).mean())
        if not level > 0:
            do = "Take samples that overlap, a wider bandwidth or a smaller ridge."
            raise DataError(problem.where, "the fitted ratio is zero on the whole denominator", do=do)
        facts = LeastSquaresFacts(
            bandwidth=bandwidth_of(system.kernel),
            ridge=ridge,
            alpha=self.mixing(),
            trials=trials,
            centres_used=int((theta > 0).sum()),
            denominator_mean=level,
            unreached=problem.unreached,
        )
        return KernelRatio(system.kernel, system.centres, theta, problem.scaling, ceiling, facts, problem.where)


class ULSIF(LeastSquares):
    """Unconstrained least-squares importance fitting."""


class RuLSIF(LeastSquares):
    """Its relative kin: bounded by 1/alpha, and therefore steady where the denominator is thin.

    `weights` are relative ratios; `weighing.plain_ratio` turns them back, as far as they allow.
    """

    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """a: the share of the numerator that is mixed into the denominator."""

    def mixing(self) -> float:
        return self.alpha


@dataclass(frozen=True)
class System:
    """H [c, c] and h [c] of one kernel."""

    kernel: Kernel
    centres: Tensor
    square: Tensor
    mean: Tensor

    @classmethod
    def of(cls, problem: Problem, centres: Tensor, kernel: Kernel, mixing: float) -> Self:
        count = len(centres)
        square, mean = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
        pieces = zip(torch.split(problem.numerator, CHUNK_ROWS), torch.split(problem.mass, CHUNK_ROWS), strict=True)
        for rows, mass in pieces:
            values = kernel.matrix(rows, centres)
            mean += values.T @ mass
            if mixing:
                square += mixing * (values.T * mass) @ values
        for rows in torch.split(problem.denominator, CHUNK_ROWS):
            values = kernel.matrix(rows, centres)
            square += (1 - mixing) / len(problem.denominator) * (values.T @ values)
        return cls(kernel, centres, square, mean)

    def solve(self, ridge: float) -> Tensor:
        """θ [c]"""
        system = self.square + ridge * torch.eye(len(self.mean), dtype=torch.float64)
        theta: Tensor = torch.linalg.solve(system, self.mean)
        return theta.clamp(min=0)


def draw_pairs(problem: Problem, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers of numerator and denominator rows [k], no row twice, by chance: files are often sorted."""
    above = torch.randperm(len(problem.numerator), generator=generator)
    below = torch.randperm(len(problem.denominator), generator=generator)
    count = min(count, len(above), len(below))
    return above[:count], below[:count]
