"""KLIEP: the ratio under which the numerator is most likely, among those that average 1 over the denominator.

    max_α mean_i log ŵ(x_i)   s.t.  α ≥ 0,  mean_k ŵ(y_k) = 1,   ŵ(x) = Σ_l α_l·k(x, c_l)

With b_l = mean_k k(y_k, c_l) and β = b·α that is a mixture's likelihood on the simplex (`simplex`), which makes the
constraint exact. Sugiyama et al. 2008; solver, pruning and certificate are ours.
"""

import warnings
from dataclasses import dataclass
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.rng import stream
from understudy.ratios.estimator import KernelEstimator, bandwidth_of
from understudy.ratios.fitted import KernelRatio
from understudy.ratios.kernels import Kernel
from understudy.ratios.problem import Problem, draw_centres, fold_numbers, pose
from understudy.ratios.samples import CHUNK_ROWS, Rows
from understudy.ratios.simplex import Solution, Solver, solve

FOLD_TOLERANCE = 1e-3
"""How far off the likelihood of a fold's fit may be: nobody needs a bandwidth chosen by less."""


@dataclass(frozen=True)
class Trial:
    """How one bandwidth did on rows it was not fitted on."""

    bandwidth: float | None
    score: float
    """Mean log ŵ of held-out numerator rows; −inf where it does not reach all of them, or no centre has support."""
    error: float
    """Standard error of the score over folds."""


@dataclass(frozen=True)
class KliepFacts:
    """How a fit came about."""

    bandwidth: float | None
    trials: tuple[Trial, ...]
    """One for each bandwidth; none where there was nothing to choose."""
    objective: float
    """Mean log ŵ over the numerator: an estimate of KL(numerator ‖ denominator)."""
    certificate: float
    """Proven: no α is better by more than this."""
    iterations: int
    centres_kept: int
    centres_dropped: int
    """Without support in the denominator, where a ratio would be unbounded."""
    unreached: float
    """Share of the numerator far from every denominator row."""


class KLIEP(KernelEstimator):
    """Kullback-Leibler importance estimation."""

    folds: int = Field(5, ge=2)
    """Of the numerator, for the choice of the bandwidth."""
    solver: Solver = "newton"
    """`newton`: interior point. `em`: multiplicative, monotone, slow."""
    tolerance: float = Field(1e-6, gt=0)
    """The certificate to reach."""
    iterations: int = Field(10_000, ge=1)
    """At most; what was reached is in `facts.certificate`, and too little of it warns."""
    prune: float = Field(1e-3, ge=0, lt=1)
    """Centres go whose mean kernel value over the denominator is below this share of their own."""
    normalisation: Literal["denominator_mean", "sum_alpha"] = "denominator_mean"
    """`sum_alpha` (Σα = 1, centres from the denominator) estimates a density, not a ratio: others' mistake. Warns."""

    @model_validator(mode="after")
    def _never_negative(self) -> Self:
        if self.kernel == "linear" or (self.kernel == "polynomial" and self.degree % 2):
            raise ValueError(f"kernel={self.kernel} can be negative, a likelihood cannot: gaussian, or an even degree")
        return self

    def fit(
        self, numerator: Rows, denominator: Rows, *, numerator_weights: Rows | None = None, seed: int = 0
    ) -> KernelRatio[KliepFacts]:
        """The ratio of numerator [n, d], whose rows may weigh [n], to denominator [m, d]."""
        problem = pose(
            numerator, denominator, numerator_weights, standardise=self.standardise, seed=seed, where=self.where()
        )
        centres = self._centres(problem, seed)
        kernels = self.candidates(problem.distance, centres.shape[1])
        trials: tuple[Trial, ...] = ()
        chosen = kernels[0]
        if len(kernels) > 1:
            folds = fold_numbers(len(problem.mass), self.folds, problem.where, stream(seed, "ratio folds"))
            trials = tuple(self._trial(problem, centres, kernel, folds) for kernel in kernels)
            best = max(range(len(trials)), key=lambda number: trials[number].score)
            chosen = kernels[best]
        return self._fitted(problem, Mixture.of(problem, centres, chosen, self), trials)

    def _centres(self, problem: Problem, seed: int) -> Tensor:
        generator = stream(seed, "ratio centres")
        if self.normalisation == "denominator_mean":
            return draw_centres(problem.numerator, problem.mass, self.centres, generator)
        warnings.warn("normalisation=sum_alpha is known to be wrong, and kept to reproduce others", stacklevel=3)
        even = torch.ones(len(problem.denominator), dtype=torch.float64)
        return draw_centres(problem.denominator, even, self.centres, generator)

    def _trial(self, problem: Problem, centres: Tensor, kernel: Kernel, folds: Tensor) -> Trial:
        bandwidth = bandwidth_of(kernel)
        mixture = Mixture.of(problem, centres, kernel, self)
        if not mixture.kept.any() or mixture.unreached:
            return Trial(bandwidth, -torch.inf, 0.0)
        whole = self._solve(mixture.likelihoods, problem.mass, FOLD_TOLERANCE)
        scores = torch.stack(
            [self._held_out(mixture, problem.mass, folds == fold, whole) for fold in range(self.folds)]
        )
        return Trial(bandwidth, float(scores.mean()), float(scores.std() / self.folds**0.5))

    def _held_out(self, mixture: "Mixture", mass: Tensor, out: Tensor, start: Solution) -> Tensor:
        """Mean log ŵ [] of rows that the fit did not see."""
        seen = mass[~out] / mass[~out].sum()
        found = self._solve(mixture.likelihoods[~out], seen, FOLD_TOLERANCE, start)
        return (mass[out] / mass[out].sum()) @ (mixture.likelihoods[out] @ found.mixture).log()

    def _solve(self, likelihoods: Tensor, mass: Tensor, tolerance: float, start: Solution | None = None) -> Solution:
        tolerance = max(tolerance, self.tolerance)
        return solve(
            likelihoods, mass, tolerance=tolerance, iterations=self.iterations, solver=self.solver, start=start
        )

    def _fitted(self, problem: Problem, mixture: "Mixture", trials: tuple[Trial, ...]) -> KernelRatio[KliepFacts]:
        mixture.check(problem.where)
        found = self._solve(mixture.likelihoods, problem.mass, 0.0)
        if found.gap > self.tolerance:
            told = f"certificate {found.gap:.1e} after {found.iterations} iterations, asked {self.tolerance:.1e}"
            warnings.warn(f"{problem.where}: not solved as far as asked: {told}", stacklevel=3)
        kept = int(mixture.kept.sum())
        facts = KliepFacts(
            bandwidth=bandwidth_of(mixture.kernel),
            trials=trials,
            objective=found.objective,
            certificate=found.gap,
            iterations=found.iterations,
            centres_kept=kept,
            centres_dropped=len(mixture.kept) - kept,
            unreached=problem.unreached,
        )
        centres, alpha = mixture.centres[mixture.kept], found.mixture / mixture.support
        return KernelRatio(mixture.kernel, centres, alpha, problem.scaling, None, facts, problem.where)


@dataclass(frozen=True)
class Mixture:
    """The simplex problem of one kernel: B = k(x, c)/b [n, kept]."""

    kernel: Kernel
    centres: Tensor
    kept: Tensor
    """Which centres [c] have support in the denominator."""
    support: Tensor
    """b [kept]"""
    likelihoods: Tensor
    unreached: int
    """Numerator rows that no kept centre reaches: their likelihood is 0 whatever α."""

    @classmethod
    def of(cls, problem: Problem, centres: Tensor, kernel: Kernel, settings: KLIEP) -> Self:
        if settings.normalisation == "sum_alpha":
            support = torch.ones(len(centres), dtype=torch.float64)
        else:
            support = torch.zeros(len(centres), dtype=torch.float64)
            for piece in torch.split(problem.denominator, CHUNK_ROWS):
                support += kernel.matrix(piece, centres).sum(0) / len(problem.denominator)
        kept = support >= settings.prune * kernel.own(centres)
        kept &= support > 0
        likelihoods = kernel.matrix(problem.numerator, centres[kept]).div_(support[kept])
        unreached = int((likelihoods.amax(1) <= 0).sum()) if bool(kept.any()) else len(likelihoods)
        return cls(kernel, centres, kept, support[kept], likelihoods, unreached)

    def check(self, where: str) -> None:
        """Raise where no ratio can be fitted: never uniform weights instead."""
        told = f"{self.kernel}".replace("bandwidth=", "bandwidth ")
        do = "Take samples that overlap, or a wider bandwidth."
        if not bool(self.kept.any()):
            what = "no centre has support in the denominator"
            raise DataError(where, what, got=f"0 of {len(self.kept)} with {told}", do=do)
        if self.unreached:
            what = "numerator rows that no centre with support reaches"
            raise DataError(where, what, got=f"{self.unreached} of {len(self.likelihoods)} with {told}", do=do)
