"""Eight bytes per row that tell rows apart, the same on every machine and day; and a sample of rows chosen by them."""

from collections.abc import Mapping
from functools import cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.data.episode import Array

Hashes = NDArray[np.uint64]
ROOM = 1 << 13
SAMPLE_ROWS = 20_000
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hash_rows(values: Array) -> Hashes:
    """One hash per row of [n, …], by its bytes: equal rows always agree, others almost never (2⁻⁶⁴)."""
    words = _words(values)
    mixed = words + _constants(words.shape[1])  # a word counts by its place
    for shift, factor in ((np.uint64(32), _FIRST), (np.uint64(29), _SECOND)):
        mixed ^= mixed >> shift  # high bits come down: a sign is the highest of all
        mixed *= factor
    mixed ^= mixed >> np.uint64(32)
    return scramble(mixed.sum(axis=1, dtype=np.uint64))


def combine(first: Hashes, second: Hashes) -> Hashes:
    """A hash of pairs [n]; the order matters."""
    return scramble(first * _GOLDEN + second)


def scramble(numbers: Hashes) -> Hashes:
    """Numbers [n] to numbers without a pattern, one to one (the finaliser of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))


def hash_runs(hashes: Hashes, starts: NDArray[np.int64]) -> Hashes:
    """One hash per run of rows: hashes [n], first row of each run [R] -> [R]. The order inside a run matters."""
    lengths = np.diff(starts, append=len(hashes))
    place = np.arange(len(hashes)) - np.repeat(starts, lengths)
    weighed = hashes * (place.astype(np.uint64) * np.uint64(2) + np.uint64(1))
    return combine(np.add.reduceat(weighed, starts), lengths.astype(np.uint64))


@final
class HashTally:
    """Hashes as they come, in little more than their eight bytes each, and how many different ones there are."""

    def __init__(self) -> None:
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, hashes: Hashes) -> None:
        end = self._count + len(hashes)
        if end > len(self._hashes):
            # In place: lists that are joined at the end take everything twice.
            self._hashes.resize(end + max(ROOM, end // 8), refcheck=False)
        self._hashes[self._count : end] = hashes
        self._count = end

    def distinct(self) -> int:
        """Sorting is several times faster than `np.unique`, which hashes them again; their order is lost."""
        hashes = self._hashes[: self._count]
        hashes.sort()
        return min(1, self._count) + int(np.count_nonzero(hashes[1:] != hashes[:-1]))


def _words(values: Array) -> NDArray[np.uint64]:
    """Rows as 64-bit words [n, W], the last one padded with zeros."""
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    size = rows.shape[1] * rows.itemsize
    if size and size % 8 == 0:
        return rows.view(np.uint64)
    padded = np.zeros((len(rows), max(8, -(-size // 8) * 8)), np.uint8)
    if size:
        padded[:, :size] = rows.view(np.uint8)
    return padded.view(np.uint64)


@cache
def _constants(count: int) -> NDArray[np.uint64]:
    """One number per word [W]."""
    return scramble(np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)


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
