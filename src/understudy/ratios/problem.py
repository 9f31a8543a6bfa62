"""What every estimator starts from: two samples, checked, brought to one scale, and within reach of each other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.rng import stream
from understudy.ratios.kernels import median_distance
from understudy.ratios.samples import Rows, checked_mass, checked_rows
from understudy.ratios.scaling import Scaling, check_varies

REACHED_ROWS = 500
REACHING_ROWS = 2000
MOST_UNREACHED = 0.5


@dataclass(frozen=True)
class Problem:
    """Numerator [n, d] with its mass [n], denominator [m, d], both scaled."""

    numerator: Tensor
    mass: Tensor
    denominator: Tensor
    scaling: Scaling
    distance: float
    """Median distance within the denominator."""
    unreached: float
    """Share of the numerator's mass farther than that from every row of the denominator."""
    where: str


def pose(
    numerator: Rows, denominator: Rows, weights: Rows | None, *, standardise: bool, seed: int, where: str
) -> Problem:
    """Checked, or a DataError that says what cannot be weighed. Rows that weigh nothing are left out."""
    below = checked_rows(denominator, f"{where}.denominator")
    above = checked_rows(numerator, f"{where}.numerator", features=below.shape[1])
    mass = checked_mass(weights, len(above), f"{where}.numerator_weights")
    _check_enough(above[mass > 0], below, where)
    check_varies(below, f"{where}.denominator")
    scaling = Scaling.of(below) if standardise else Scaling.none(below.shape[1])
    above, below, mass = scaling.apply(above[mass > 0]), scaling.apply(below), mass[mass > 0]
    distance = median_distance(below, stream(seed, "ratio distance"))
    unreached = unreached_share(above, mass, below, distance, stream(seed, "ratio reach"))
    if unreached > MOST_UNREACHED:
        what = "the numerator lies outside the denominator's support: no ratio exists there"
        got = f"{unreached:.0%} of it farther from every denominator row than those are from each other"
        raise DataError(where, what, got=got, do="Take samples that overlap.")
    return Problem(above, mass, below, scaling, distance, unreached, where)


def unreached_share(above: Tensor, mass: Tensor, below: Tensor, distance: float, generator: torch.Generator) -> float:
    """Share of the numerator's mass with no denominator row within `distance`, measured on some of both."""
    some = torch.randperm(len(above), generator=generator)[:REACHED_ROWS]
    others = torch.randperm(len(below), generator=generator)[:REACHING_ROWS]
    nearest = torch.cdist(above[some], below[others]).amin(1)
    return float(mass[some][nearest > distance].sum() / mass[some].sum())


def draw_centres(rows: Tensor, mass: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """At most `count` different rows [c, d], a heavy one rather than a light one."""
    keys = torch.empty(len(rows), dtype=torch.float64).exponential_(generator=generator) / mass
    drawn: Tensor = torch.unique(rows[keys.argsort()[:count]], dim=0)
    return drawn


def fold_numbers(rows: int, folds: int, where: str, generator: torch.Generator) -> Tensor:
    """The fold [n] each row belongs to: disjoint, equal in size to one row, by chance."""
    if rows < folds:
        do = "Give more rows, ask for fewer folds, or fix the bandwidth."
        raise DataError(f"{where}.numerator", "fewer rows than folds", got=rows, expected=f"at least {folds}", do=do)
    return torch.arange(rows)[torch.randperm(rows, generator=generator)] % folds


def _check_enough(above: Tensor, below: Tensor, where: str) -> None:
    for name, rows in {"numerator": above, "denominator": below}.items():
        if len(rows) < 2:
            raise DataError(f"{where}.{name}", "too few rows", got=len(rows), expected="at least 2")
