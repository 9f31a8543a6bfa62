"""Eight bytes per row that tell rows apart: thousands of rows at once, the same on every machine and day."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from understudy.data.episode import Array

Hashes = NDArray[np.uint64]
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
