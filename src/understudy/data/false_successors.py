"""False successors: a row whose next observation is some other row's, with every other row left as it was.

Each observation is stored once, as the successor of one row and the start of the next. To make only the successor
wrong the episode ends there, stopped and not terminated, in a false final observation; the next row begins a piece.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode

POOL_ROWS = 10_000
POOL_BYTES = 64 << 20
GATHERED = 256
"""Rows of a mapped column that are touched before its pages are handed back."""


@dataclass(frozen=True)
class Donors:
    """Observations that stand for false successors, with the rows [M] that start from them, in order."""

    rows: NDArray[np.int64]
    observations: Mapping[str, Array]
    mask: Array | None

    def pick(self, row: int, last: bool, chance: float) -> int:
        """One of them, each as likely, but never the row's true successor. `chance` is in [0, 1)."""
        truth = int(np.searchsorted(self.rows, row + 1))
        if last or truth == len(self.rows) or self.rows[truth] != row + 1:
            return int(chance * len(self.rows))
        number = int(chance * (len(self.rows) - 1))
        return number + (number >= truth)


def donors(dataset: Dataset, rng: np.random.Generator) -> Donors:
    """The observations of all rows, or of as many random ones as fit into bounded memory."""
    size = sum(column[:1].nbytes for column in dataset.observations.values())
    count = min(dataset.steps, POOL_ROWS, max(2, POOL_BYTES // max(1, size)))
    rows = np.sort(rng.choice(dataset.steps, count, replace=False))
    slots = rows + np.searchsorted(dataset.index.ends, rows, side="right")
    columns = dataset.columns()
    observations = {name: _gather(dataset, columns[f"observation.{name}"], slots) for name in dataset.observations}
    return Donors(rows, observations, _gather(dataset, columns["mask"], slots) if "mask" in columns else None)


def _gather(dataset: Dataset, column: Array, slots: NDArray[np.int64]) -> Array:
    parts = []
    for first in range(0, len(slots), GATHERED):
        parts.append(column[slots[first : first + GATHERED]])
        dataset.release()
    return np.concatenate(parts)


def with_false_successors(
    episode: Episode, first_row: int, steps: NDArray[np.int64], pool: Donors, chance: NDArray[np.float64]
) -> Iterator[Episode]:
    """The episode in pieces that end with each of `steps` and its false successor. `chance` [n] is in [0, 1)."""
    begin = 0
    for step in map(int, steps):
        last = step == len(episode) - 1
        number = pool.pick(first_row + step, last, float(chance[step]))
        piece = _piece(episode, begin, step + 1)
        yield replace(
            piece,
            observations={
                name: _ending(values, pool.observations[name][number]) for name, values in piece.observations.items()
            },
            mask=None if piece.mask is None or pool.mask is None else _ending(piece.mask, pool.mask[number]),
            truncated=episode.truncated if last else True,
        )
        begin = step + 1
    if begin < len(episode):
        yield replace(
            _piece(episode, begin, len(episode)),
            terminated=episode.terminated,
            truncated=episode.truncated,
            final_known=episode.final_known,
        )


def _ending(values: Array, row: Array) -> Array:
    """[n+1, …] with another last row."""
    return np.concatenate([values[:-1], row[None]])


def _piece(episode: Episode, begin: int, end: int) -> Episode:
    """Steps from `begin` to before `end`, with the observation after them if there is one."""
    return Episode(
        {name: values[begin : end + 1] for name, values in episode.observations.items()},
        episode.actions[begin:end],
        episode.rewards[begin:end],
        terminated=False,
        truncated=False,
        mask=None if episode.mask is None else episode.mask[begin : end + 1],
        extra={name: values[begin:end] for name, values in episode.extra.items()},
    )
