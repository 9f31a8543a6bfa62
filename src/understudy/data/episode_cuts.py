"""Episodes cut: by the clock where a recording marks no time limits, around rows that hold no numbers, and to the last
observation that is known."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understudy.data.episode import Array, Episode


def cut_episodes(episodes: Iterable[Episode], limit: int) -> Iterator[Episode]:
    """Every episode in pieces of at most `limit` steps."""
    for episode in episodes:
        yield from pieces(episode, limit)


def pieces(episode: Episode, limit: int) -> Iterator[Episode]:
    """The clock starts with the episode; what the last piece ended with is what the whole did.

    The row after an unmarked time limit is the first of another episode. So a piece inside has no final observation,
    and is truncated, never terminated.
    """
    steps = len(episode)
    for first in range(0, steps, limit):
        end = min(first + limit, steps)
        last = end == steps
        known = last and episode.final_known
        rows = slice(first, end + known)
        terminated = last and episode.terminated
        yield Episode(
            {name: values[rows] for name, values in episode.observations.items()},
            episode.actions[first:end],
            episode.rewards[first:end],
            terminated,
            not terminated and (end - first == limit or episode.truncated),
            known,
            _rows(episode.mask, rows),
            {name: values[first:end] for name, values in episode.extra.items()},
        )


def from_step(episode: Episode, first: int) -> Episode:
    """What is left of an episode from a step on, at least its last one; it ends as it did."""
    first = min(first, len(episode) - 1)
    if first == 0:
        return episode
    return replace(
        episode,
        observations={name: values[first:] for name, values in episode.observations.items()},
        actions=episode.actions[first:],
        rewards=episode.rewards[first:],
        mask=None if episode.mask is None else episode.mask[first:],
        extra={name: values[first:] for name, values in episode.extra.items()},
    )


def finite_pieces(episode: Episode) -> Iterator[Episode]:
    """What stands between rows that hold NaN or infinity, as float32 sees them; all of it, where there are none.

    A row whose observation is whole still ends the piece before it: there it is the final one. A piece inside is
    neither terminated nor truncated: nobody knows what came next.
    """
    steps = len(episode)
    seen = np.logical_and.reduce([_finite(values) for values in episode.observations.values()])  # [n] or [n+1]
    whole = seen[:steps] & _finite(episode.actions) & _finite(episode.rewards)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], whole, [False]]).astype(np.int8)))
    for first, end in edges.reshape(-1, 2).tolist():
        last = end == steps
        known = end < len(seen) and bool(seen[end])
        rows = slice(first, end + known)
        yield replace(
            episode,
            observations={name: values[rows] for name, values in episode.observations.items()},
            actions=episode.actions[first:end],
            rewards=episode.rewards[first:end],
            terminated=last and episode.terminated,
            truncated=last and episode.truncated,
            final_known=known,
            mask=_rows(episode.mask, rows),
            extra={name: values[first:end] for name, values in episode.extra.items()},
        )


def _finite(values: Array) -> NDArray[np.bool_]:
    """[n]: rows without NaN and infinity."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(values, np.float32))
    return np.asarray(finite.reshape(len(finite), -1).all(axis=1))


def _rows(mask: Array | None, rows: slice) -> Array | None:
    return None if mask is None else mask[rows]


def drop_unknown_finals(episodes: Iterable[Episode]) -> Iterator[Episode]:
    """Episodes cut to their last known observation, unless the world ended there: then its successor is never used."""
    for episode in episodes:
        if episode.final_known or episode.terminated:
            yield episode
        elif len(episode) > 1:
            yield _shortened(episode)


def _shortened(episode: Episode) -> Episode:
    """Without the last step, whose observation becomes the final one."""
    steps = len(episode) - 1
    return replace(
        episode,
        actions=episode.actions[:steps],
        rewards=episode.rewards[:steps],
        final_known=True,
        extra={name: values[:steps] for name, values in episode.extra.items()},
    )
