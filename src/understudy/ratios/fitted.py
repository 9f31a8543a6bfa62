"""Fitted ratios: what was learned, never changed again, asked for weights some rows at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.ratios.kernels import Kernel
from understudy.ratios.samples import CHUNK_ROWS, Rows, check_shape, chunks
from understudy.ratios.scaling import Scaling

Facts = TypeVar("Facts")


class Ratio(Protocol):
    """What every estimator's `fit` gives."""

    def weights(self, rows: Rows, *, chunk_rows: int = CHUNK_ROWS) -> Tensor:
        """ŵ [n] of rows [n, d]."""
        ...


@dataclass(frozen=True)
class KernelRatio(Generic[Facts]):
    """ŵ(x) = Σ_l α_l·k(x, c_l), at least 0 and at most `ceiling`: centres [c, d] in scaled features, α [c]."""

    kernel: Kernel
    centres: Tensor
    coefficients: Tensor
    scaling: Scaling
    ceiling: float | None
    facts: Facts
    where: str

    def weights(self, rows: Rows, *, chunk_rows: int = CHUNK_ROWS) -> Tensor:
        """ŵ [n] of rows [n, d], float64, in the memory of one chunk: the same bits whatever its size."""
        return in_chunks(rows, self.centres.shape[1], self._of_chunk, chunk_rows, f"{self.where}.weights")

    def _of_chunk(self, chunk: Tensor) -> Tensor:
        return kernel_sum(self.kernel, self.scaling.apply(chunk), self.centres, self.coefficients, self.ceiling)


def kernel_sum(kernel: Kernel, rows: Tensor, centres: Tensor, coefficients: Tensor, ceiling: float | None) -> Tensor:
    """Σ_l α_l·k(x, c_l) [n] within [0, ceiling], for scaled rows [n, d]. No matrix product: see `kernels`."""
    return kernel.matrix(rows, centres).mul_(coefficients).sum(1).clamp(min=0, max=ceiling)


def in_chunks(rows: Rows, features: int, evaluate: Callable[[Tensor], Tensor], chunk_rows: int, where: str) -> Tensor:
    """`evaluate` [n, d] → [n] on some rows after the other."""
    if chunk_rows < 1:
        raise ConfigError(f"{where}.chunk_rows", "wrong value", got=chunk_rows, expected="1 or more")
    check_shape(rows, where, features)
    found = torch.empty(len(rows), dtype=torch.float64)
    for number, chunk in enumerate(chunks(rows, where, chunk_rows)):
        found[number * chunk_rows : number * chunk_rows + len(chunk)] = evaluate(chunk)
    return found
