"""Episodes cut: by the clock where a recording marks no time limits, and to the last observation that is known."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

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
