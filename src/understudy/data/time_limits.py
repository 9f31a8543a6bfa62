"""Episodes cut by the clock, for recordings that mark no time limits and join what lies on either side of one."""

from collections.abc import Iterable, Iterator

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
