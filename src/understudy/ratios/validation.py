"""Is this a kernel, and does it say anything about these rows?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.ratios.kernels import Kernel
from understudy.ratios.samples import Rows, checked_rows

MOST_ROWS = 4000
ROUNDING = 1e-10


@dataclass(frozen=True)
class KernelReport:
    """What the matrix of a kernel on some rows looks like."""

    rows: int
    asymmetry: float
    """Largest |K − Kᵀ|, relative to the largest |K|."""
    smallest_eigenvalue: float
    largest_eigenvalue: float
    effective_dimension: float
    """Σ λᵢ/(λᵢ + n·ridge): near 1 the kernel takes all rows for alike, near n for all different."""
    mean_off_diagonal: float
    """Mean kernel value of two different rows: near 0, the kernel is too narrow to say anything of them."""

    @property
    def symmetric(self) -> bool:
        """Up to rounding."""
        return self.asymmetry <= ROUNDING

    @property
    def positive_semidefinite(self) -> bool:
        """Up to rounding."""
        return self.smallest_eigenvalue >= -ROUNDING * self.rows * max(self.largest_eigenvalue, 1.0)

    @property
    def valid(self) -> bool:
        """A kernel in the strict sense, as far as these rows can tell."""
        return self.symmetric and self.positive_semidefinite


def examine_kernel(kernel: Kernel, rows: Rows, *, ridge: float = 1e-3) -> KernelReport:
    """Of rows [n, d], n at most 4,000: the eigenvalues of an [n, n] matrix are asked for."""
    if not ridge > 0:
        raise ConfigError("examine_kernel.ridge", "wrong value", got=ridge, expected="a number above 0")
    values = checked_rows(rows, "examine_kernel")
    if not 2 <= len(values) <= MOST_ROWS:
        raise DataError("examine_kernel", "wrong number of rows", got=len(values), expected=f"2 to {MOST_ROWS:,}")
    return examine_matrix(kernel.matrix(values, values), ridge=ridge)


def examine_matrix(matrix: Tensor, *, ridge: float = 1e-3) -> KernelReport:
    """Of a kernel matrix [n, n]."""
    _check_square(matrix)
    count, scale = len(matrix), max(float(matrix.abs().max()), torch.finfo(matrix.dtype).tiny)
    eigenvalues = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    positive = eigenvalues.clamp(min=0)
    return KernelReport(
        rows=count,
        asymmetry=float((matrix - matrix.T).abs().max()) / scale,
        smallest_eigenvalue=float(eigenvalues[0]),
        largest_eigenvalue=float(eigenvalues[-1]),
        effective_dimension=float((positive / (positive + count * ridge)).sum()),
        mean_off_diagonal=float((matrix.sum() - matrix.diagonal().sum()) / (count * (count - 1))),
    )


def alignment(first: Tensor, second: Tensor) -> float:
    """⟨K, L⟩/(‖K‖·‖L‖) of two kernel matrices [n, n], centred: 1 where both order the rows alike, 0 where unrelated.

    A kernel for telling two samples apart is judged against L = y·yᵀ, y = ±1 by sample.
    """
    _check_square(first)
    _check_square(second)
    if first.shape != second.shape:
        raise DataError("alignment", "matrices of different rows", got=f"{len(first)} and {len(second)}")
    one, two = _centred(first), _centred(second)
    size = float(one.norm() * two.norm())
    if not size > 0:
        raise DataError("alignment", "a kernel matrix that is constant: it orders nothing")
    return float((one * two).sum()) / size


def _centred(matrix: Tensor) -> Tensor:
    values = matrix.double()
    return values - values.mean(0, keepdim=True) - values.mean(1, keepdim=True) + values.mean()


def _check_square(matrix: Tensor) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise DataError("kernel matrix", "wrong shape", got=list(matrix.shape), expected="[n, n], n at least 2")
    if not bool(torch.isfinite(matrix).all()):
        raise DataError("kernel matrix", "has values that are not finite")
