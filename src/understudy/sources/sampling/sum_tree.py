"""A sum tree: draws numbers in proportion to weights that change all the time.

                 29                  each node is the sum of the two below it; what is drawn at level x of the total is
            13        16             found by walking down: left where x is below the left sum, otherwise right, with
          3    10   12   4           what is left of x
         3 0   8 2 10 2 4 0

A whole batch walks at once, and only from a level of a few thousand nodes on, which is searched in its running sum.
NumPy, not torch: for 256 of a million leaves its many small steps take half the time (0.09 ms to draw, 0.05 ms to set).
Sums are made of what is below them, never by adding differences: they are a function of the leaves alone.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.state import Static

TOP = 1 << 12
"""Levels of more nodes than this are walked through: a longer running sum would take longer than a step down."""


@final
@dataclass
class SumTree:
    leaves: Tensor
    """Weights [capacity], float32, none below 0; one further 0 where the capacity is odd. All there is to keep."""
    top: Static[int] = TOP
    """The most nodes of a level that is searched in its running sum."""
    sums: Static[list[NDArray[np.float64]]] = field(default_factory=list)
    """Levels above the leaves, the lowest first; each is half of the one below, and even."""
    summed: Static[int] = -1
    """The version of the leaves that the sums are of: whoever restores a checkpoint writes leaves, and no sums."""

    @classmethod
    def of(cls, capacity: int, top: int = TOP) -> "SumTree":
        """All weights are 0."""
        return cls(torch.zeros(capacity + capacity % 2), top)

    @property
    def total(self) -> float:
        return float(np.cumsum(self._levels()[-1], dtype=np.float64)[-1])

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of leaves by number [B]."""
        return self.leaves.numpy()[rows].astype(np.float64)

    def set(self, rows: NDArray[np.int64], weights: NDArray[np.float64] | float) -> None:
        """Weights [B] of leaves by number [B], which may be told twice: the last word counts."""
        levels = self._levels()
        levels[0][rows] = weights
        for below, above in pairwise(levels):
            rows = rows >> 1
            left = rows << 1
            above[rows] = np.add(below[left], below[left + 1], dtype=np.float64)

    def draw(self, fractions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Leaves by number [B] and their shares of the total [B], with which they are drawn; the i-th is of the i-th of
        B equal parts of it.

        `fractions` [B] in [0, 1) say where in its part. A leaf of weight 0 is never drawn, whatever is rounded; one at
        least must be above 0.
        """
        *walked, top = self._levels()
        running = np.cumsum(top, dtype=np.float64)
        level = (np.arange(len(fractions)) + fractions) * (running[-1] / max(len(fractions), 1))
        level = np.minimum(level, np.nextafter(running[-1], 0.0))
        node: NDArray[np.int64] = np.searchsorted(running, level, side="right")
        level -= np.where(node > 0, running[node - 1], 0.0)
        for below in reversed(walked):
            left = node << 1
            weight = below[left]
            right = (level >= weight) & (below[left + 1] > 0)
            level -= weight * right
            node = left + right
        return node, self.weights(node) / running[-1]

    def _levels(self) -> list[NDArray[Any]]:
        """Leaves and sums, the top last; summed again if somebody else wrote the leaves."""
        leaves: NDArray[np.float32] = self.leaves.numpy()
        if self.summed != self.leaves._version:
            level: NDArray[Any] = leaves
            self.sums = []
            while len(level) > self.top:
                above = np.add(level[::2], level[1::2], dtype=np.float64)
                self.sums.append(np.append(above, 0.0) if len(above) % 2 else above)
                level = self.sums[-1]
            self.summed = self.leaves._version
        return [leaves, *self.sums]
