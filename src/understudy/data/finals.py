"""Episodes that end with an observation, for formats and readers that know no other."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from understudy.data.episode import Episode


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
