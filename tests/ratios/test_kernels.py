"""Kernels and what can be said about them."""

import math

import pytest
import torch

import understudy as us
from understudy.core.errors import UnderstudyError
from understudy.ratios.kernels import squared_distances

GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randn(60, 3, generator=GENERATOR, dtype=torch.float64)
KERNELS: list[us.ratios.Kernel] = [
    us.ratios.Gaussian(0.8),
    us.ratios.Linear(),
    us.ratios.Polynomial(2, scale=0.5),
    us.ratios.Polynomial(3),
]


def test_values_by_hand() -> None:
    x, c = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([[0.0, 4.0]]).double()
    assert float(us.ratios.Gaussian(2.0).matrix(x, c)) == pytest.approx(math.exp(-5 / 8))
    assert float(us.ratios.Linear().matrix(x, c)) == 8
    assert float(us.ratios.Polynomial(3, scale=0.25, offset=1).matrix(x, c)) == 27


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_own_is_the_diagonal(kernel: us.ratios.Kernel) -> None:
    assert torch.allclose(kernel.own(ROWS), kernel.matrix(ROWS, ROWS).diagonal())


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_are_kernels(kernel: us.ratios.Kernel) -> None:
    report = us.ratios.examine_kernel(kernel, ROWS)
    assert report.valid


def test_what_is_no_kernel_is_found_out() -> None:
    distances = squared_distances(ROWS, ROWS)
    assert us.ratios.examine_matrix(distances).symmetric
    assert not us.ratios.examine_matrix(distances).positive_semidefinite
    lopsided = us.ratios.Gaussian(1.0).matrix(ROWS, ROWS)
    lopsided[0, 1] += 0.01
    report = us.ratios.examine_matrix(lopsided)
    assert not report.symmetric
    assert not report.valid


def test_the_effective_dimension_goes_from_one_to_all() -> None:
    dimensions = [
        us.ratios.examine_kernel(us.ratios.Gaussian(s), ROWS).effective_dimension for s in (1000.0, 1.0, 1e-3)
    ]
    assert dimensions == sorted(dimensions)
    assert dimensions[0] == pytest.approx(1, abs=0.1)
    assert dimensions[2] == pytest.approx(60 / (1 + 60e-3))
    linear = us.ratios.examine_kernel(us.ratios.Linear(), ROWS, ridge=1e-9)
    assert linear.effective_dimension == pytest.approx(3, abs=1e-3)


def test_a_bandwidth_of_one_sees_nothing_in_seventeen_dimensions() -> None:
    rows = torch.randn(400, 17, generator=torch.Generator().manual_seed(1))
    report = us.ratios.examine_kernel(us.ratios.Gaussian(1.0), rows)
    assert report.mean_off_diagonal == pytest.approx(3 ** (-17 / 2), rel=0.3)


def test_alignment() -> None:
    one = us.ratios.Gaussian(1.0).matrix(ROWS, ROWS)
    assert us.ratios.alignment(one, one) == pytest.approx(1)
    assert us.ratios.alignment(one, 3 * one + 2) == pytest.approx(1), "scale and offset order nothing"
    labels = torch.where(ROWS[:, 0] > 0, 1.0, -1.0).double()
    shuffled = labels[torch.randperm(60, generator=torch.Generator().manual_seed(1))]
    told, untold = (us.ratios.alignment(one, torch.outer(y, y)) for y in (labels, shuffled))
    assert told > 2 * abs(untold)


def test_the_median_distance() -> None:
    rows = torch.tensor([[0.0], [1.0], [3.0]])
    assert us.ratios.median_distance(rows, torch.Generator()) == 2
    many = torch.zeros(100, 1)
    many[0] = 5
    assert us.ratios.median_distance(many, torch.Generator()) == 5, "pairs of equal rows do not count"


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan, math.inf])
def test_bandwidths_that_are_none_are_refused(bandwidth: float) -> None:
    with pytest.raises(UnderstudyError, match="a number above 0"):
        us.ratios.Gaussian(bandwidth)


def test_distances_never_fall_below_zero() -> None:
    far = ROWS.float() + 1e4
    assert float(squared_distances(far, far).min()) == 0
    assert float(squared_distances(far, far).diagonal().max()) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: us.ratios.Polynomial(0),
        lambda: us.ratios.Polynomial(2, scale=0.0),
        lambda: us.ratios.examine_matrix(torch.ones(2, 3)),
        lambda: us.ratios.examine_matrix(torch.full((2, 2), torch.nan)),
        lambda: us.ratios.examine_kernel(us.ratios.Linear(), ROWS, ridge=0.0),
        lambda: us.ratios.examine_kernel(us.ratios.Linear(), torch.ones(5000, 1)),
        lambda: us.ratios.alignment(torch.eye(2), torch.eye(3)),
        lambda: us.ratios.alignment(torch.ones(3, 3), torch.eye(3)),
    ],
)
def test_what_cannot_be_examined_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(UnderstudyError):
        call()
