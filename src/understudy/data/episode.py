"""One episode, checked at the door.

n actions have n+1 observations. A recording that lost its final observation says so
(`final_known=False`); its last step then serves imitation but no bootstrapped loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError

Array = NDArray[Any]


@dataclass(frozen=True)
class Episode:
    observations: Mapping[str, Array]
    """Each group [n+1, …]; [n, …] if the final observation is unknown."""
    actions: Array
    """[n, A] in environment units."""
    rewards: Array
    """[n], the reward that followed each action."""
    terminated: bool
    """The world ended (no value after the last step)."""
    truncated: bool
    """Somebody stopped watching (a time limit): the value goes on."""
    final_known: bool = True

    def __len__(self) -> int:
        return len(self.actions)


def check_episode(episode: Episode, where: str) -> Episode:
    """The episode in float32 (uint8 observations stay), or an error naming the place."""
    actions = _numbers(episode.actions, f"{where}, actions")
    rewards = _numbers(episode.rewards, f"{where}, rewards")
    steps = len(actions)
    if steps == 0:
        raise DataError(where, "has no steps", do="Drop empty episodes.")
    if actions.ndim != 2:
        raise DataError(where, "actions have the wrong shape", got=list(actions.shape), expected=f"[{steps}, A]")
    if rewards.shape != (steps,):
        raise DataError(where, "rewards do not match actions", got=list(rewards.shape), expected=[steps])
    if not episode.observations:
        raise DataError(where, "has no observations")
    observations = {}
    for name, values in episode.observations.items():
        observations[name] = _numbers(values, f"{where}, observation '{name}'", keep_bytes=True)
        _check_observation_count(len(observations[name]), steps, episode.final_known, where)
    if episode.terminated and episode.truncated:
        raise DataError(
            where,
            "is marked terminated and truncated",
            do="A step that ends the world is terminated, whatever the clock says: clear the truncated flag.",
        )
    return Episode(
        observations, actions, rewards, bool(episode.terminated), bool(episode.truncated), episode.final_known
    )


def _check_observation_count(count: int, steps: int, final_known: bool, where: str) -> None:
    expected = steps + 1 if final_known else steps
    if count != expected:
        hint = "Was the final observation dropped?" if count == steps else ""
        raise DataError(where, f"has {steps} actions and {count} observations, expected {expected}", do=hint)


def _numbers(values: Array, where: str, *, keep_bytes: bool = False) -> Array:
    """[n, …] in float32; images may stay bytes."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(where, f"not an array ({error})") from error
    if array.dtype.kind not in "fiub":
        raise DataError(where, "not numeric", got=array.dtype, expected="float, integer or bool")
    if keep_bytes and array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):  # too large for float32 is told below, as not finite
        array = np.ascontiguousarray(array, dtype=np.float32)
    check_finite(array, where)
    return array


def check_finite(array: Array, where: str) -> None:
    """Refuse NaN and infinity (float32 overflow included), naming the first row and column."""
    finite = np.isfinite(array)
    if not finite.all():
        place = np.argwhere(~finite)[0]
        column = f", column {', '.join(map(str, place[1:]))}" if len(place) > 1 else ""
        raise DataError(
            f"{where}, row {place[0]}{column}",
            "not finite",
            got=array[tuple(place)],
            expected="a finite float32",
            do=f"{int((~finite).sum())} such values here; repair or drop these episodes.",
        )
