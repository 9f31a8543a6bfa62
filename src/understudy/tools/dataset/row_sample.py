"""A sample of steps that depends on the data alone: the same rows whatever the blocks they came in."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.data.episode import Array
from understudy.tools.dataset.row_hash import scramble

SAMPLE_ROWS = 20_000


class RowSample:
    """Up to SAMPLE_ROWS steps, all of them if there are no more, otherwise at least half as many, chosen evenly.

    A step stays if the hash of its number lies under a limit; when there are too many, the limit is halved.
    """

    def __init__(self, rows: int = SAMPLE_ROWS) -> None:
        self._most = rows
        self._seen = 0
        self._limit = (1 << 64) - 1
        self._hashes: list[NDArray[np.uint64]] = []
        self._kept: dict[str, list[Array]] = {}
        self._count = 0

    def add(self, columns: Mapping[str, Array]) -> None:
        """Further steps, each column [n, …]."""
        count = len(next(iter(columns.values())))
        hashes = scramble(np.arange(self._seen, self._seen + count, dtype=np.uint64))
        self._seen += count
        chosen = np.flatnonzero(hashes <= np.uint64(self._limit))
        self._hashes.append(hashes[chosen])
        for name, values in columns.items():
            self._kept.setdefault(name, []).append(values[chosen])
        self._count += len(chosen)
        while self._count > self._most:
            self._limit //= 2
            self._thin()

    def _thin(self) -> None:
        hashes = np.concatenate(self._hashes)
        chosen = np.flatnonzero(hashes <= np.uint64(self._limit))
        self._hashes, self._count = [hashes[chosen]], len(chosen)
        self._kept = {name: [np.concatenate(parts)[chosen]] for name, parts in self._kept.items()}

    def columns(self) -> dict[str, Array]:
        """The sampled steps in their order, each column [k, …]."""
        return {name: np.concatenate(parts) for name, parts in self._kept.items()}
