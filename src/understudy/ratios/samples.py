"""Samples as estimators take them: rows of numbers that were looked at before anything is computed from them."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.errors import DataError

Rows = Tensor | NDArray[np.generic]
"""Numbers [n, d], a row each: a tensor, or an array (which may be mapped from a file)."""

CHUNK_ROWS = 16384


def check_shape(rows: Rows, where: str, features: int | None = None) -> None:
    """At least one row and one feature, and as many features as were asked for."""
    if not isinstance(rows, (Tensor, np.ndarray)):
        raise DataError(where, "not an array or tensor", got=type(rows).__name__)
    shape = list(rows.shape)
    if len(shape) != 2:
        do = "One feature is still a column: reshape(-1, 1)." if len(shape) == 1 else ""
        raise DataError(where, "wrong shape", got=shape, expected="[rows, features]", do=do)
    if 0 in shape:
        raise DataError(where, "empty", got=shape, expected="at least one row and one feature")
    if features is not None and shape[1] != features:
        raise DataError(where, "wrong number of features", got=shape[1], expected=features)
    numeric = not rows.is_complex() if isinstance(rows, Tensor) else rows.dtype.kind in "fiub"
    if not numeric:
        raise DataError(where, "not real numbers", got=rows.dtype)


def chunks(rows: Rows, where: str, chunk_rows: int = CHUNK_ROWS) -> Iterator[Tensor]:
    """The rows as finite float64, some at a time, so that a copy of all never stands in memory."""
    for start in range(0, len(rows), chunk_rows):
        piece = rows[start : start + chunk_rows]
        if isinstance(piece, Tensor):
            chunk = piece.detach().to("cpu", torch.float64)
        else:
            chunk = torch.tensor(np.asarray(piece, dtype=np.float64))
        _check_finite(chunk, start, where)
        yield chunk


def checked_rows(rows: Rows, where: str, features: int | None = None) -> Tensor:
    """All rows [n, d] as finite float64."""
    check_shape(rows, where, features)
    return torch.cat(list(chunks(rows, where)))


def checked_mass(weights: Rows | None, count: int, where: str) -> Tensor:
    """What each of `count` rows weighs [n], non-negative, Σ = 1; all the same without weights."""
    if weights is None:
        return torch.full((count,), 1 / count, dtype=torch.float64)
    if not isinstance(weights, (Tensor, np.ndarray)) or list(weights.shape) != [count]:
        got = list(weights.shape) if isinstance(weights, (Tensor, np.ndarray)) else type(weights).__name__
        raise DataError(where, "wrong shape", got=got, expected=f"[{count}], one for each row of the numerator")
    mass = torch.cat([chunk[:, 0] for chunk in chunks(weights[:, None], where)])
    if bool((mass < 0).any()) or not float(mass.sum()) > 0:
        raise DataError(where, "must not be negative, nor all zero", got=f"smallest {float(mass.min()):g}")
    return mass / mass.sum()


def _check_finite(chunk: Tensor, start: int, where: str) -> None:
    bad = ~torch.isfinite(chunk)
    if bool(bad.any()):
        row, column = map(int, bad.nonzero()[0])
        what = f"not a finite number in row {start + row}, feature {column}"
        raise DataError(where, what, got=float(chunk[row, column]), do="Drop such rows, or mend them, first.")
