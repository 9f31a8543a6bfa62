"""Numbers from 0 to 1 in bytes: images and depths take a quarter of the room, and are wrong by 1/510 at most."""

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.episode import Array

LEVELS = 255


def to_bytes(values: Array, where: str) -> NDArray[np.uint8]:
    """round(255·x) [...] of numbers from 0 to 1; others are refused."""
    low, high = float(np.min(values)), float(np.max(values))
    if not (low >= 0 and high <= 1):
        raise DataError(
            where,
            "only numbers from 0 to 1 fit in bytes",
            got=f"{low:g} to {high:g}",
            do="Scale them in a wrapper of the environment, or leave it out.",
        )
    return np.rint(np.asarray(values, np.float32) * LEVELS).astype(np.uint8)


def from_bytes(values: Array, where: str) -> NDArray[np.float32]:
    """x/255 [...]: what `to_bytes` makes of it again is the same bytes."""
    if values.dtype != np.uint8:
        raise DataError(where, "is not stored in bytes", got=values.dtype, expected="uint8")
    return values.astype(np.float32) / np.float32(LEVELS)
