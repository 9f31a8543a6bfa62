"""The solvers of KLIEP's likelihood, against brute force and against each other."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from understudy.ratios.simplex import Solver, certificate, solve

SOLVERS: list[Solver] = ["newton", "em"]


def problem(seed: int, rows: int = 40, columns: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    likelihoods = torch.rand(rows, columns, generator=generator, dtype=torch.float64).pow(3) + 1e-3
    mass = torch.rand(rows, generator=generator, dtype=torch.float64)
    return likelihoods, mass / mass.sum()


def best_on_a_grid(likelihoods: Tensor, mass: Tensor, steps: int = 300) -> float:
    """Of all mixtures of three whose shares are multiples of 1/steps."""
    first, second = torch.meshgrid(torch.arange(steps + 1), torch.arange(steps + 1), indexing="ij")
    inside = first + second <= steps
    shares = torch.stack([first[inside], second[inside], steps - first[inside] - second[inside]]).double() / steps
    return float((mass @ (likelihoods @ shares).log()).max())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(5))
def test_no_mixture_of_a_fine_grid_is_better_than_the_certificate_allows(solver: Solver, seed: int) -> None:
    likelihoods, mass = problem(seed)
    found = solve(likelihoods, mass, tolerance=1e-7, iterations=100_000, solver=solver)
    brute = best_on_a_grid(likelihoods, mass)
    assert found.gap <= 1e-7
    assert brute <= found.objective + found.gap
    assert abs(brute - found.objective) < 1e-4
    assert abs(float(found.mixture.sum()) - 1) < 1e-12
    assert bool((found.mixture >= 0).all())


def test_the_certificate_bounds_how_far_any_mixture_is_off() -> None:
    likelihoods, mass = problem(7)
    best = best_on_a_grid(likelihoods, mass)
    for shares in ([1.0, 0, 0], [0.2, 0.3, 0.5], [0.01, 0.98, 0.01]):
        mixture = torch.tensor(shares, dtype=torch.float64)
        objective = float(mass @ (likelihoods @ mixture).log())
        assert best - objective <= certificate(likelihoods, mass, mixture)


def test_em_never_falls() -> None:
    likelihoods, mass = problem(1, rows=200, columns=20)
    objectives = [
        solve(likelihoods, mass, tolerance=0.0, iterations=count, solver="em").objective for count in range(1, 60)
    ]
    assert all(later >= earlier - 1e-14 for earlier, later in pairwise(objectives))
    assert objectives[-1] > objectives[0] + 1e-3


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 60), columns=st.integers(1, 12))
def test_newton_arrives_whatever_the_problem(seed: int, rows: int, columns: int) -> None:
    likelihoods, mass = problem(seed, rows, columns)
    found = solve(likelihoods, mass, tolerance=1e-6, iterations=1000)
    assert found.gap <= 1e-6
    assert found.gap == pytest.approx(certificate(likelihoods, mass, found.mixture), abs=1e-12)


def test_mass_is_repetition() -> None:
    likelihoods, _ = problem(2, columns=5)
    counts = torch.arange(len(likelihoods)) % 4
    weighed = solve(likelihoods, counts / counts.sum().double(), tolerance=1e-10, iterations=500)
    repeated = likelihoods.repeat_interleave(counts, 0)
    even = torch.full((len(repeated),), 1 / len(repeated), dtype=torch.float64)
    again = solve(repeated, even, tolerance=1e-10, iterations=500)
    assert weighed.objective == pytest.approx(again.objective, abs=1e-9)


def test_a_neighbours_solution_saves_steps_and_changes_nothing() -> None:
    likelihoods, mass = problem(3, rows=500, columns=30)
    whole = solve(likelihoods, mass, tolerance=1e-3, iterations=500)
    part, its_mass = likelihoods[:400], mass[:400] / mass[:400].sum()
    warm = solve(part, its_mass, tolerance=1e-6, iterations=500, start=whole)
    cold = solve(part, its_mass, tolerance=1e-6, iterations=500)
    assert abs(warm.objective - cold.objective) <= 1e-6
    assert warm.iterations < cold.iterations
