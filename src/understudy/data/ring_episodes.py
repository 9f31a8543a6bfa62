"""Episodes out of a replay ring: every row that is there is a step of one of them, with its true successor.

Rows are read block by block, and what is held is the block and the episodes that are still open. An episode ends where
its row says so. Where the ring says nothing (a barrier, the newest row) it is cut there: truncated, its final
observation known. One whose beginning was overwritten begins with its oldest row.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import CheckpointError
from understudy.core.large_state import LargeState, StoredRows
from understudy.core.segments import Rows
from understudy.core.spec import ACTION_MASK
from understudy.data.episode import Episode
from understudy.data.replay_ring import (
    ACTION,
    AFTER,
    FACT,
    FLAGS,
    NUMBERS,
    SEEN,
    TERMINATED,
    TRUNCATED,
    VALID,
    RowLayout,
)

Array = NDArray[Any]
Columns = dict[str, Array]


def stored_blocks(stored: StoredRows, ring: LargeState) -> Iterator[Rows]:
    """The rows of a checkpoint, oldest first, a segment at a time; `ring` says how they are laid out."""
    if stored.layout != ring.layout or len(stored.segments) != len(ring.blocks(stored.written)):
        raise CheckpointError("replay buffer", "of another layout", got=stored.layout, expected=ring.layout)
    oldest = max(0, stored.written - ring.capacity)
    for block, sha256 in zip(ring.blocks(stored.written), stored.segments, strict=True):
        first = block * ring.segment_rows
        rows = stored.folder.read(sha256, ring.row, min(ring.segment_rows, stored.written - first))
        yield {name: column[max(0, oldest - first) :] for name, column in rows.items()}


def valid_rows(blocks: Iterable[Rows]) -> int:
    """How many steps there are."""
    return sum(int((rows[FLAGS] >= VALID).sum()) for rows in blocks)


def ring_episodes(blocks: Iterable[Rows], layout: RowLayout, num_envs: int) -> Iterator[Episode]:
    """The episodes in rows [k·N, …], in the order in which they ended; the unfinished ones last, by environment."""
    unfinished: list[list[Columns]] = [[] for _ in range(num_envs)]
    for rows in blocks:
        steps = {name: column.numpy().reshape(-1, num_envs, *column.shape[1:]) for name, column in rows.items()}
        closed: list[tuple[int, Episode]] = []
        for number, pieces in enumerate(unfinished):
            own = {name: column[:, number] for name, column in steps.items()}
            closed += [(time, _episode(whole, layout)) for time, whole in _cut(own, pieces, layout)]
        yield from (episode for _, episode in sorted(closed, key=lambda found: found[0]))
    yield from (_episode(pieces, layout) for pieces in unfinished if pieces)


def _cut(rows: Columns, pieces: list[Columns], layout: RowLayout) -> Iterator[tuple[int, list[Columns]]]:
    """What ends among one environment's rows [k, …], and with which of them; `pieces` is what is open, then and now."""
    flags = rows[FLAGS]
    ended, valid = (flags & (TERMINATED | TRUNCATED)) > 0, flags >= VALID
    goes_on = np.zeros(len(flags), bool)
    goes_on[1:] = valid[1:] & valid[:-1] & ~ended[:-1] & _continues(rows, {n: c[1:] for n, c in rows.items()}, layout)
    if pieces:
        goes_on[:1] = valid[:1] & _continues({n: c[-1:] for n, c in pieces[-1].items()}, rows, layout)
    stops = [*np.flatnonzero(~goes_on).tolist(), len(flags)]
    for first, last in zip([0, *stops], stops, strict=False):
        if first == last:
            continue
        if pieces and not goes_on[first]:
            yield first, pieces.copy()
            pieces.clear()
        if valid[first]:
            pieces.append({name: column[first:last].copy() for name, column in rows.items()})
            if ended[last - 1]:
                yield last - 1, pieces.copy()
                pieces.clear()


def _continues(before: Columns, rows: Columns, layout: RowLayout) -> NDArray[np.bool_]:
    """Whether each row [k] saw what the one before it [k or more] led to."""
    count = min(len(before[FLAGS]), len(rows[FLAGS]))
    led_to, saw = before[NUMBERS][:count, layout.after :], rows[NUMBERS][:count, : layout.seen]
    same: NDArray[np.bool_] = (led_to == saw).all(1)
    for name in layout.images:
        alike = before[f"{AFTER}{name}"][:count] == rows[f"{SEEN}{name}"][:count]
        same &= alike.reshape(count, -1).all(1)
    return same


def _episode(pieces: Sequence[Columns], layout: RowLayout) -> Episode:
    numbers = np.concatenate([piece[NUMBERS] for piece in pieces])
    choices = [piece[ACTION] for piece in pieces if ACTION in piece]
    terminated = bool(pieces[-1][FLAGS][-1] & TERMINATED)
    seen = {name: _observed(name, numbers, pieces, layout) for name in layout.spec.observation}
    return Episode(
        seen,
        np.concatenate(choices) if choices else numbers[:, layout.seen : layout.reward],
        numbers[:, layout.reward],
        terminated,
        truncated=not terminated,
        mask=_images(ACTION_MASK, pieces) if layout.spec.masked else None,
        extra={name: np.concatenate([piece[f"{FACT}{name}"] for piece in pieces]) for name in layout.facts},
    )


def _observed(name: str, numbers: Array, pieces: Sequence[Columns], layout: RowLayout) -> Array:
    """A group [n+1, …]."""
    if name not in layout.places:
        return _images(name, pieces)
    place = layout.places[name]
    final = numbers[-1:, layout.after + place.start : layout.after + place.stop]
    return np.concatenate([numbers[:, place], final]).reshape(-1, *layout.spec.observation[name].shape)


def _images(name: str, pieces: Sequence[Columns]) -> Array:
    return np.concatenate([*(piece[f"{SEEN}{name}"] for piece in pieces), pieces[-1][f"{AFTER}{name}"][-1:]])
