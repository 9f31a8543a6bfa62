"""Features brought to one scale: kernels measure distances, in which a large unit would drown the others."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from understudy.core.errors import DataError

NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Scaling:
    """(x − mean)/scale, feature by feature: mean, scale [d]."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def none(cls, features: int) -> Self:
        """Leaves everything as it is."""
        return cls(torch.zeros(features, dtype=torch.float64), torch.ones(features, dtype=torch.float64))

    @classmethod
    def of(cls, rows: Tensor) -> Self:
        """Brings these rows [n, d] to mean 0 and deviation 1."""
        return cls(rows.mean(0), rows.std(0, correction=0))

    def apply(self, rows: Tensor) -> Tensor:
        """[n, d] → [n, d]"""
        return (rows - self.mean) / self.scale


def check_varies(rows: Tensor, where: str) -> None:
    """Every feature of rows [n, d] takes more than one value: of a constant one, nothing outside it can be weighed."""
    still = rows.std(0, correction=0) <= NEGLIGIBLE * rows.abs().amax(0)
    if bool(still.any()):
        columns = [int(column) for column in still.nonzero()[:, 0]]
        told = f"{columns[:8]}" + (" and more" if len(columns) > 8 else "")
        raise DataError(where, "constant features", got=f"columns {told}", do="Leave them out of both samples.")
