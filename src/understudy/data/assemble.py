"""From checked episodes to columns: every episode alike, observations in slots, actions inside the space."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace, Box, Group, Spec
from understudy.data.episode import Array, Episode


def spec_of_episode(episode: Episode, space: ActionSpace) -> Spec:
    groups = {name: Group(values.shape[1:], values.dtype.name) for name, values in episode.observations.items()}
    return Spec(groups, space, masked=episode.mask is not None)


def check_same(episode: Episode, first: Episode, where: str) -> None:
    """An episode has the columns of the first one: names, shapes and dtypes."""
    for what, here, there in (
        ("observations differ", episode.observations, first.observations),
        ("further columns differ", episode.extra, first.extra),
    ):
        got, expected = _kinds(here), _kinds(there)
        if got != expected:
            raise DataError(where, what, got=got, expected=f"{expected}, as in the first episode")
    if episode.actions.shape[1:] != first.actions.shape[1:]:
        raise DataError(where, "action size differs", got=episode.actions.shape[1], expected=first.actions.shape[1])
    if (episode.mask is None) != (first.mask is None):
        raise DataError(where, "some episodes have an action mask and some have none")


def _kinds(columns: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype.name, array.shape[1:]) for name, array in columns.items()}


def check_action_bounds(actions: Array, space: ActionSpace, where: str) -> None:
    """Continuous actions have the space's dimension and lie inside it, up to float32 rounding."""
    if not isinstance(space, Box):
        return
    if actions.shape[1:] != (space.size,):
        raise DataError(
            where,
            "actions have the wrong size",
            got=actions.shape[1],
            expected=f"{space.size}, as in the action space {space.describe()}",
            do="It is the environment's, where one is named: is the data of another?",
        )
    outside = outside_box(actions, space)
    if outside.any():
        raise DataError(
            where,
            f"{int(outside.sum())} of {len(actions)} actions lie outside the action space, the first in row "
            f"{int(outside.argmax())}",
            got=f"up to {np.abs(actions).max():g}",
            expected=f"{space.low} to {space.high}",
            do="Choose: actions=clip cuts them to the bounds; actions_from=[low, high] maps the range they were "
            "recorded in onto the bounds.",
        )


def outside_box(actions: Array, space: Box) -> Array:
    """Which rows of [n, A] have a component outside the box, by more than float32 rounding [n]."""
    slack = 1e-5 * space.half_range
    low, high = np.asarray(space.low) - slack, np.asarray(space.high) + slack
    return np.asarray(((actions < low) | (actions > high)).any(1))


def slots(values: Array, final_known: bool) -> Array:
    """n+1 slots; an unknown final observation repeats the last known one and is never used as a successor."""
    return values if final_known else np.concatenate([values, values[-1:]])


def join(parts: Sequence[Array]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))


def join_slots(episodes: Sequence[Episode], group: str) -> Tensor:
    return join([slots(episode.observations[group], episode.final_known) for episode in episodes])


def join_masks(episodes: Sequence[Episode]) -> Tensor | None:
    masks = [slots(episode.mask, episode.final_known) for episode in episodes if episode.mask is not None]
    return join(masks) if masks else None
