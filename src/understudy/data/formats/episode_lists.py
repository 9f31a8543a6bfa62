"""Episodes as plain Python: a list of dicts, or of `Episode`, as a recording.

A dict has `observations` (an array, or a dict of arrays) with n+1 rows, `actions` and `rewards` with n, and says how it
ended: `terminated` and `truncated`, one bool each or a flag per step. If the final observation was not kept it has n
observations (as `final_known=False` says, too), or it has n `next_observations`. Further columns of n rows stand under
`extra`; a key that nobody knows is an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from understudy.core.errors import DataError, did_you_mean
from understudy.core.spec import ACTION_MASK
from understudy.data.episode import COLUMN_NAME, Array, Episode, as_array, check_flags
from understudy.data.formats.columns import NAMES, RENAMED
from understudy.data.recording import NO_REWARDS, Recording

ROLES = ("observations", "next_observations", "actions", "rewards", "terminated", "truncated", "done", "mask")
KNOWN = {name: role for role in ROLES for name in NAMES[role]}
ENDS = ("terminated", "truncated", "done")
UNREWARDED = "No rewards in some episodes: they are read as 0, and only imitation makes sense."
NO_FINAL = (
    "As many observations as actions in some episodes: their final ones are taken as unknown (final_known=False), and "
    "last steps that did not terminate are left out of bootstrapped losses."
)
DONE = "`done` does not say whether the world ended or the time ran out: read as terminal."
NO_END = "Some episodes do not say how they ended: read as cut off, not as terminal."


def episodes_from(items: Sequence[Episode | Mapping[str, Any]], name: str = "episodes") -> Recording:
    """A recording of episodes that are already in memory, in the order of the list."""
    where = f"dataset '{name}'"
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Sequence):
        raise DataError(where, "not a list of episodes", got=type(items).__name__, expected="a list of dicts")
    notes: dict[str, None] = {}
    episodes = [_episode(item, f"{where}, episode {number}", notes) for number, item in enumerate(items)]
    if not episodes:
        raise DataError(where, "has no episodes")
    facts = NO_REWARDS if UNREWARDED in notes else {}
    steps = sum(len(episode) for episode in episodes)
    return Recording(name, steps, lambda: iter(episodes), layout="list", notes=tuple(notes), facts=facts)


def _episode(item: object, where: str, notes: dict[str, None]) -> Episode:
    if isinstance(item, Episode):
        return item
    if not isinstance(item, Mapping):
        raise DataError(where, "not an episode", got=type(item).__name__, expected="a dict or an Episode")
    parts = _parts(item, where)
    actions = as_array(parts["actions"], f"{where}, actions")
    steps = len(actions)
    observations = _observations(parts["observations"], f"{where}, observations")
    observations = _with_final(observations, parts.get("next_observations"), steps, where)
    terminated, truncated = _ends(parts, steps, where, notes)
    if "rewards" not in parts:
        notes[UNREWARDED] = None
    rewards = parts.get("rewards", np.zeros(steps, np.float32))
    return Episode(
        observations,
        actions,
        _flat(as_array(rewards, f"{where}, rewards")),
        terminated,
        truncated,
        _final_known(item, observations, steps, where, notes),
        as_array(parts["mask"], f"{where}, mask") if "mask" in parts else None,
        _extra(item, where),
    )


def _parts(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values by role; every role has one name at most."""
    parts: dict[str, Any] = {}
    for name, value in item.items():
        role = KNOWN.get(name)
        if role is not None and value is not None:
            if role in parts:
                raise DataError(where, f"says {role} twice", got=sorted(key for key in item if KNOWN.get(key) == role))
            parts[role] = value
    for role in ("observations", "actions"):
        if role not in parts:
            raise DataError(where, f"has no '{role}'", do=did_you_mean(role, map(str, item)))
    return _with_mask(parts, where)


def _with_mask(parts: dict[str, Any], where: str) -> dict[str, Any]:
    """A mask that stands among the observations, as environments give it, in its own role."""
    seen, after = parts["observations"], parts.get("next_observations")
    if "mask" in parts or not isinstance(seen, Mapping) or ACTION_MASK not in seen:
        return parts
    rows = [as_array(seen[ACTION_MASK], f"{where}, {ACTION_MASK}")]
    if isinstance(after, Mapping) and ACTION_MASK in after:
        rows.append(as_array(after[ACTION_MASK], f"{where}, {ACTION_MASK}")[-1:])
    bare = {
        role: {name: values for name, values in groups.items() if name != ACTION_MASK}
        for role, groups in (("observations", seen), ("next_observations", after))
        if isinstance(groups, Mapping)
    }
    return {**parts, **bare, "mask": np.concatenate(rows)}


def _final_known(
    item: Mapping[str, Any], observations: Mapping[str, Array], steps: int, where: str, notes: dict[str, None]
) -> bool:
    """What the dict says; n observations of n actions say it, too."""
    if "final_known" in item:
        return _flag(item["final_known"], 1, f"{where}, final_known")
    known = any(len(values) != steps for values in observations.values())
    if not known:
        notes[NO_FINAL] = None
    return known


def _flat(values: Array) -> Array:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _observations(values: object, where: str) -> dict[str, Array]:
    if not isinstance(values, Mapping):
        return {"state": as_array(values, where)}
    for group in values:
        if not isinstance(group, str) or not COLUMN_NAME.fullmatch(group):
            raise DataError(where, "not a usable name of an observation group", got=repr(group))
    return {group: as_array(part, f"{where} '{group}'") for group, part in values.items()}


def _with_final(observations: dict[str, Array], successors: object, steps: int, where: str) -> dict[str, Array]:
    """The final observation put back from `next_observations`, which must continue the observations."""
    if successors is None:
        return observations
    after = _observations(successors, f"{where}, next_observations")
    if after.keys() != observations.keys():
        raise DataError(where, "next observations have other groups", got=sorted(after), expected=sorted(observations))
    whole = {}
    for group, seen in observations.items():
        told = after[group]
        if len(seen) != steps or told.shape != seen.shape:
            raise DataError(
                f"{where}, next_observations", "wrong shape", got=list(told.shape), expected=[steps, *seen.shape[1:]]
            )
        if not np.allclose(seen[1:], told[:-1], rtol=1e-6, atol=1e-6, equal_nan=True):
            raise DataError(where, "next_observations does not continue the observations")
        whole[group] = np.concatenate([seen, told[-1:]])
    return whole


def _ends(parts: Mapping[str, Any], steps: int, where: str, notes: dict[str, None]) -> tuple[bool, bool]:
    """Whether the episode terminated and whether it was truncated; terminal wins where both are said."""
    said = {role: _flag(parts[role], steps, f"{where}, {role}") for role in ENDS if role in parts}
    if not said:
        notes[NO_END] = None
    truncated = said.get("truncated", False)
    if "terminated" in said:
        return said["terminated"], not said["terminated"] and (truncated or said.get("done", False))
    if "done" in said and "truncated" not in said:
        notes[DONE] = None
    return said.get("done", False) and not truncated, truncated


def _flag(value: object, steps: int, where: str) -> bool:
    """One bool, or a flag per step of which only the last may be set."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or array.size not in {1, steps}:
        raise DataError(where, "neither one flag nor one per step", got=f"{array.dtype} {array.shape}")
    flags = check_flags(array.reshape(-1), where)
    early = np.flatnonzero(flags[:-1])
    if len(early):
        raise DataError(f"{where}, row {early[0]}", "ends the episode before its last step", do="Cut the list there.")
    return bool(flags[-1])


def _extra(item: Mapping[str, Any], where: str) -> dict[str, Array]:
    """What stands under `extra`, and a behaviour's log-probability under any of its names: a row per step."""
    extra = item.get("extra", {})
    if not isinstance(extra, Mapping):
        raise DataError(f"{where}, extra", "not a dict of arrays", got=type(extra).__name__)
    loose = {name: value for name, value in item.items() if name not in KNOWN and name not in {"extra", "final_known"}}
    for name in loose:
        if name not in {*RENAMED, *RENAMED.values()}:
            raise DataError(
                where,
                f"has no use for '{name}'",
                do=f"{did_you_mean(str(name), [*KNOWN, 'final_known'])} Further columns stand in a dict under 'extra'.",
            )
    columns = {}
    for name, value in {**loose, **extra}.items():
        short = RENAMED.get(name, name)
        if not isinstance(name, str) or not COLUMN_NAME.fullmatch(short):
            raise DataError(where, "not a usable name of a column", got=repr(name))
        columns[short] = as_array(value, f"{where}, {name}")
    return columns
