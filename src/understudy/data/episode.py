"""One episode, checked at the door.

n actions have n+1 observations. A recording that lost its final observation says so
(`final_known=False`); its last step then serves imitation but no bootstrapped loss.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.core.arguments import kind_of
from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace, Box, Discrete, recordable

Array = NDArray[Any]
COLUMN_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""Names of groups and columns become names of files and of their members, so they may not wander."""
Precision = Literal["float32", "source"]
"""`float32` is what networks compute in; `source` keeps float64 columns as they were recorded."""


@dataclass(frozen=True, repr=False)
class Episode:
    observations: Mapping[str, Array]
    """Each group [n+1, …]; [n, …] if the final observation is unknown."""
    actions: Array
    """[n, A] in environment units, or [n] whole numbers."""
    rewards: Array
    """[n], the reward that followed each action."""
    terminated: bool
    """The world ended (no value after the last step)."""
    truncated: bool = False
    """Somebody stopped watching (a time limit): the value goes on."""
    final_known: bool = True
    mask: Array | None = None
    """Legal actions, one row per observation [n+1, K] ([n, K] if the final one is unknown)."""
    extra: Mapping[str, Array] = field(default_factory=dict)
    """Anything numeric that belongs to steps, such as a behaviour's log-probability: each [n, …]."""

    def __post_init__(self) -> None:
        """Observations that are one array are the group `state`."""
        given: object = self.observations
        if isinstance(given, np.ndarray):
            object.__setattr__(self, "observations", {"state": given})

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        seen = ", ".join(f"{name} {list(np.shape(values)[1:])}" for name, values in self.observations.items())
        end = "terminated" if self.terminated else "truncated" if self.truncated else "not ended"
        told = f"return {float(np.sum(self.rewards)):.4g}, {end}{'' if self.final_known else ', final unknown'}"
        return f"Episode({len(self):,} steps, {told}; {seen} → {list(np.shape(self.actions)[1:])})"


def check_episode(episode: Episode, where: str, space: ActionSpace, precision: Precision = "float32") -> Episode:
    """The episode in the precision asked for (uint8 and categories stay), or an error naming the place."""
    _check_parts(episode, where)
    actions = _actions(episode.actions, space, f"{where}, actions", precision)
    steps = len(actions)
    if steps == 0:
        raise DataError(where, "has no steps", do="Drop empty episodes.")
    rewards = _numbers(episode.rewards, f"{where}, rewards", precision)
    if rewards.shape != (steps,):
        raise DataError(where, "rewards do not match actions", got=list(rewards.shape), expected=[steps])
    if not episode.observations:
        raise DataError(where, "has no observations")
    observations = {}
    for name, values in episode.observations.items():
        observations[name] = _numbers(values, f"{where}, observation '{name}'", precision, keep=(np.uint8,))
        _check_observation_count(len(observations[name]), steps, episode.final_known, where)
    if episode.terminated and episode.truncated:
        raise DataError(
            where,
            "is marked terminated and truncated",
            do="A step that ends the world is terminated, whatever the clock says: clear the truncated flag.",
        )
    return replace(
        episode,
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminated=bool(episode.terminated),
        truncated=bool(episode.truncated),
        mask=_mask(episode, actions, space, where),
        extra={name: _extra(values, steps, f"{where}, {name}", precision) for name, values in episode.extra.items()},
    )


def _check_parts(episode: object, where: str) -> None:
    """It is one, and its parts are of the right kind; what is in them is looked at one by one."""
    if not isinstance(episode, Episode):
        raise DataError(where, "not an episode", got=kind_of(episode), expected="an Episode")
    for name in ("observations", "extra"):
        if not isinstance(episode.__dict__[name], Mapping):
            got = kind_of(episode.__dict__[name])
            raise DataError(where, f"its {name} are not named", got=got, expected='{"name": array, …}')
    for name in ("terminated", "truncated", "final_known"):
        if not isinstance(episode.__dict__[name], (bool, np.bool_)):
            got = repr(episode.__dict__[name])
            raise DataError(where, f"'{name}' is neither True nor False", got=got, do="One flag for the whole episode.")


def _actions(values: Array, space: ActionSpace, where: str, precision: Precision) -> Array:
    """[n, A] for a box; [n] whole numbers for a discrete space, which may come one-hot."""
    if isinstance(space, Box):
        actions = _numbers(values, where, precision)
        if actions.ndim == 1 and space.size == 1:
            actions = actions[:, None]
        if actions.ndim != 2:
            raise DataError(where, "wrong shape", got=list(actions.shape), expected=f"[{len(actions)}, A]")
        return actions
    return _choices(values, _discrete(space), where)


def _discrete(space: ActionSpace) -> Discrete:
    known = recordable(space)
    assert isinstance(known, Discrete)
    return known


def _choices(values: Array, space: Discrete, where: str) -> NDArray[np.int64]:
    given = as_array(values, where)
    _check_finite(given, where)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim == 2 and given.shape[1] == space.count:
        if not (np.isin(given, (0, 1)).all() and (given.sum(1) == 1).all()):
            raise DataError(where, "not one-hot", got=given[0].tolist(), expected="a single 1 in each row")
        given = given.argmax(1)
    if given.ndim != 1:
        raise DataError(where, "wrong shape", got=list(given.shape), expected=f"[n] or [n, {space.count}] one-hot")
    wrong = np.flatnonzero((given != np.floor(given)) | (given < 0) | (given >= space.count))
    if len(wrong):
        raise DataError(
            f"{where}, row {wrong[0]}",
            "no such action",
            got=given[wrong[0]],
            expected=f"a whole number from 0 to {space.count - 1}",
            do=f"{len(wrong)} such rows here.",
        )
    return np.ascontiguousarray(given, np.int64)


def _mask(episode: Episode, actions: Array, space: ActionSpace, where: str) -> NDArray[np.bool_] | None:
    """Legal actions as bools; every row but that of a terminal state has one, and the one taken is legal."""
    if episode.mask is None:
        return None
    if isinstance(space, Box):
        raise DataError(where, "has an action mask, but its actions are continuous")
    mask = check_flags(as_array(episode.mask, f"{where}, mask"), f"{where}, mask")
    steps = len(actions)
    rows, count = steps + 1 if episode.final_known else steps, _discrete(space).count
    if mask.shape != (rows, count):
        raise DataError(f"{where}, mask", "wrong shape", got=list(mask.shape), expected=[rows, count])
    legal = mask[np.arange(steps), actions]
    if not legal.all():
        row = int(np.flatnonzero(~legal)[0])
        raise DataError(f"{where}, row {row}", f"its mask forbids the action it took ({actions[row]})")
    if not episode.terminated and not mask.any(1).all():
        raise DataError(f"{where}, row {steps}, mask", "no action is legal, and the episode did not terminate")
    return mask


def _extra(values: Array, steps: int, where: str, precision: Precision) -> Array:
    array = _numbers(values, where, precision, keep=(np.uint8, np.int32, np.int64, np.bool_))
    if len(array) != steps:
        raise DataError(where, "does not match actions", got=len(array), expected=steps)
    return array


def _check_observation_count(count: int, steps: int, final_known: bool, where: str) -> None:
    expected = steps + 1 if final_known else steps
    if count != expected:
        hint = "If the final one was not recorded, say final_known=False." if count == steps else ""
        raise DataError(where, f"has {steps} actions and {count} observations, expected {expected}", do=hint)


def as_array(values: object, where: str) -> Array:
    """[n, …] of numbers."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(where, f"not an array ({error})") from error
    if array.dtype.kind not in "fiub":
        raise DataError(where, "not numeric", got=array.dtype, expected="float, integer or bool")
    if array.ndim == 0:
        raise DataError(where, "a single number where rows belong", got=array)
    return array


def _numbers(values: Array, where: str, precision: Precision, *, keep: tuple[type[np.generic], ...] = ()) -> Array:
    """[n, …] in float32, or float64 if the source is to be kept; dtypes in `keep` (images are bytes) stay."""
    array = as_array(values, where)
    if array.dtype in keep:
        return np.ascontiguousarray(array)
    wide = precision == "source" and not np.can_cast(array.dtype, np.float32)
    with np.errstate(over="ignore"):  # too large for float32 is told below, as not finite
        array = np.ascontiguousarray(array, dtype=np.float64 if wide else np.float32)
    _check_finite(array, where)
    return array


def check_flags(values: Array, where: str) -> NDArray[np.bool_]:
    """Bools, from 0 and 1 of any dtype; anything else is refused with its row."""
    wrong = np.argwhere((values != 0) & (values != 1))
    if len(wrong):
        place = tuple(wrong[0])
        raise DataError(f"{where}, row {place[0]}", "not a flag", got=values[place], expected="0 or 1")
    return values.astype(bool)


def _check_finite(array: Array, where: str) -> None:
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
            do=f"{int((~finite).sum())} such values here; data.not_finite=drop leaves such episodes out, "
            "=cut only such rows.",
        )
