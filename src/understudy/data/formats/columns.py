"""What the columns of a flat file are called: one table of names for every role, and what is done with the rest."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from understudy.core.errors import DataError, did_you_mean
from understudy.core.spec import ACTION_MASK
from understudy.data.episode import COLUMN_NAME, Array

NAMES: dict[str, tuple[str, ...]] = {
    "observations": ("observations", "observation", "obs", "states", "state"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states", "next_state"),
    "actions": ("actions", "action", "acts", "act"),
    "rewards": ("rewards", "reward", "rews", "rew", "rewards_flat"),
    "terminated": ("terminals", "terminal", "terminations", "terminated", "source_terminal"),
    "truncated": ("timeouts", "timeout", "truncations", "truncated"),
    "done": ("dones", "done"),
    "last": ("episode_end", "episode_ends", "episode_terminals", "dones_float"),
    "first": ("episode_starts", "episode_start"),
    "episode": ("episode_id", "episode_ids", "episode_index", "episode"),
    "final_known": ("final_known",),
    "mask": ("action_mask", "action_masks", "mask", "masks"),
    "next_mask": ("next_action_mask", "next_mask", "next_masks"),
}
"""Names of each role, the preferred one first. `done` and `last` mark an end and leave open of which kind."""
ONE_NUMBER = {"rewards", "episode", "terminated", "truncated", "done", "last", "first", "final_known"}
FLAGS = ("terminated", "truncated", "done", "last", "first", "final_known")
RENAMED = dict.fromkeys(
    ("behaviour_logp", "behavior_logp", "log_probs", "log_prob", "action_log_probs"), "behaviour_log_prob"
)
"""Further columns that are known under one name."""
FOLDER = re.compile(r"(infos|extra)[/.]")
MISSPELT = 0.85
"""So alike are `reward_` and `reward`, and not `forward` and `reward`."""
TOLD = 8
"""So many ignored columns are named in a note."""


class FileColumn(Protocol):
    """A numpy array, an h5py dataset, or whatever else hands out rows."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Array: ...


@dataclass(frozen=True)
class Table:
    """Columns by role, checked to have the same number of rows n."""

    rows: int
    observations: Mapping[str, FileColumn]
    """Each group [n, …]."""
    successors: Mapping[str, FileColumn]
    """The observation after each step, by group [n, …]; empty if the file has none."""
    actions: FileColumn
    rewards: FileColumn | None
    flags: Mapping[str, tuple[str, FileColumn]]
    """By role, with the name in the file; each [n] or [n, 1]."""
    episode: FileColumn | None
    masks: Mapping[str, FileColumn]
    """`mask` and `next_mask`, each [n, K]."""
    extra: Mapping[str, FileColumn]
    notes: tuple[str, ...]


def sort_columns(columns: Mapping[str, FileColumn], where: str) -> Table:
    """Every column in its role; what has none but a row per step is kept as a further column."""
    notes: list[str] = []
    columns = _with_masks(columns, notes)
    taken = _roles(columns)
    used = set(taken.values()) | _repeated(columns, taken, notes, where)
    groups = {role: _groups(columns, role, taken, where) for role in ("observations", "next_observations")}
    observations, successors = groups["observations"], groups["next_observations"]
    if not observations or "actions" not in taken:
        missing = "actions" if observations else "observations"
        unknown = [_shown(name) for name in columns if name not in used and name not in NAMES["mask"]]
        raise DataError(where, f"has no array '{missing}'", do=did_you_mean(missing, unknown) if unknown else "")
    used |= {name for part in groups.values() for name in part.values()}
    if "rewards" not in taken:
        _refuse_misspelt([name for name in columns if name not in used], where)
    first = next(iter(observations.values()))
    rows = _rows(columns[first], first, where)
    for name in observations.values():
        _check_shape(columns[name], name, False, rows, first, where)
    for role, name in taken.items():
        _check_shape(columns[name], name, role in ONE_NUMBER, rows, first, where)
    _check_successors(columns, observations, successors, where)
    masks: dict[str, FileColumn] = {role: columns[taken[role]] for role in ("mask", "next_mask") if role in taken}
    extra = _extra(columns, used, rows, notes)
    return Table(
        rows,
        {group: columns[name] for group, name in observations.items()},
        {group: columns[name] for group, name in successors.items()},
        columns[taken["actions"]],
        columns[taken["rewards"]] if "rewards" in taken else None,
        {role: (taken[role], columns[taken[role]]) for role in FLAGS if role in taken},
        columns[taken["episode"]] if "episode" in taken else None,
        masks if "mask" in masks else {},
        extra,
        tuple(notes),
    )


def _with_masks(columns: Mapping[str, FileColumn], notes: list[str]) -> Mapping[str, FileColumn]:
    """Masks that stand among the observations, as environments give them, under the names of masks."""
    renamed = {}
    for role, mask in (("observations", "mask"), ("next_observations", "next_mask")):
        found = [f"{prefix}{mark}{ACTION_MASK}" for prefix in NAMES[role] for mark in "/."]
        for name in found:
            if name in columns and not any(other in columns for other in NAMES[mask]):
                renamed[name] = NAMES[mask][0]
                notes.append(f"'{name}' is read as the mask of legal actions.")
    return {renamed.get(name, name): column for name, column in columns.items()} if renamed else columns


def _refuse_misspelt(others: Iterable[str], where: str) -> None:
    """No rewards, but a column that is nearly called so: to read it as something else would make them all 0."""
    near = [name for name in others if get_close_matches(name.lower(), NAMES["rewards"], n=1, cutoff=MISSPELT)]
    if near:
        raise DataError(
            where,
            f"has no rewards, but a column {_shown(near[0])}",
            do=f"If these are the rewards, say columns=reward={_shown(near[0])}; if there are none, columns=reward=",
        )


def _roles(columns: Mapping[str, FileColumn]) -> dict[str, str]:
    """The name each role has in this file."""
    taken = {}
    for role, names in NAMES.items():
        present = [name for name in names if name in columns and _fits(role, name, columns[name])]
        if present:
            taken[role] = present[0]
    return taken


def _repeated(columns: Mapping[str, FileColumn], taken: Mapping[str, str], notes: list[str], where: str) -> set[str]:
    """Second names of a flag's role, which must say the same; other second names become further columns."""
    repeated = set()
    for role, chosen in taken.items():
        for other in NAMES[role]:
            if other == chosen or other not in columns:
                continue
            if role in FLAGS:
                if not _equal(columns[chosen], columns[other]):
                    raise DataError(where, f"'{chosen}' and '{other}' say different things", do="Drop one of them.")
                repeated.add(other)
            else:
                notes.append(f"'{other}' is kept as a further column: '{chosen}' is read as {role}.")
    return repeated


def _fits(role: str, name: str, column: FileColumn) -> bool:
    """A mask has a column per action; one number per row under such a short name is somebody's `1 - done`."""
    if role not in {"mask", "next_mask"}:
        return True
    return len(column.shape) == 2 and (column.shape[1] > 1 or "action" in name)


def _equal(one: FileColumn, other: FileColumn) -> bool:
    """Single numbers are told later, as columns without rows."""
    if one.shape != other.shape or (one.dtype != other.dtype and "V" in (one.dtype.kind, other.dtype.kind)):
        return False
    return one.shape == () or np.array_equal(one[:], other[:])


def _groups(columns: Mapping[str, FileColumn], role: str, taken: dict[str, str], where: str) -> dict[str, str]:
    """Observation groups: one array is the group `state`; `observations/<group>` are named ones."""
    if role in taken:
        return {"state": taken.pop(role)}
    groups = {}
    for prefix in NAMES[role]:
        for name in columns:
            if name.startswith((f"{prefix}/", f"{prefix}.")):
                group = _plain(name[len(prefix) + 1 :])
                if not COLUMN_NAME.fullmatch(group) or group in groups:
                    raise DataError(f"{where}, {_shown(name)}", "not a usable name of an observation group")
                groups[group] = name
        if groups:
            return groups
    return {}


def _rows(column: FileColumn, name: str, where: str) -> int:
    if len(column.shape) == 0:
        raise DataError(f"{where}, {name}", "a single number where rows belong")
    if column.shape[0] == 0:
        raise DataError(where, "has no rows")
    return column.shape[0]


def _check_shape(column: FileColumn, name: str, one_number: bool, rows: int, first: str, where: str) -> None:
    """Numeric, with as many rows as the observations; flags and rewards are one number each."""
    _check_numeric(column, f"{where}, {_shown(name)}")
    if len(column.shape) == 0:
        raise DataError(f"{where}, {_shown(name)}", "a single number where rows belong")
    expected = (rows,) if one_number else (rows, *column.shape[1:])
    if column.shape not in {expected, (rows, 1)}:
        raise DataError(
            where,
            f"array '{name}' has the wrong shape",
            got=column.shape,
            expected=f"{expected}, as '{first}' has {rows} rows",
        )


def _check_numeric(column: FileColumn, where: str) -> None:
    if column.dtype.kind not in "fiub":
        raise DataError(where, "not numeric", got=column.dtype, expected="float, integer or bool")
    if 0 in column.shape[1:]:
        raise DataError(where, "has rows without numbers", got=column.shape)


def _check_successors(
    columns: Mapping[str, FileColumn], observations: Mapping[str, str], successors: Mapping[str, str], where: str
) -> None:
    if successors and successors.keys() != observations.keys():
        raise DataError(
            where, "next observations have other groups", got=sorted(successors), expected=sorted(observations)
        )
    for group, name in successors.items():
        _check_numeric(columns[name], f"{where}, {_shown(name)}")
        got, expected = columns[name].shape, columns[observations[group]].shape
        if got != expected:
            raise DataError(
                where,
                f"array '{name}' has the wrong shape",
                got=got,
                expected=f"{expected}, as '{observations[group]}' has",
            )


def _extra(columns: Mapping[str, FileColumn], used: set[str], rows: int, notes: list[str]) -> dict[str, FileColumn]:
    """Further columns with one row of numbers per step; the rest is ignored, with a note."""
    extra: dict[str, FileColumn] = {}
    ignored = []
    for name, column in columns.items():
        if name in used or name.startswith("metadata/"):
            continue
        short = _plain(FOLDER.sub("", name, count=1))
        short = RENAMED.get(short, short)
        short = short if short not in extra else _plain(name)
        if _per_step(name, column, rows) and COLUMN_NAME.fullmatch(short) and short not in extra:
            extra[short] = column
        else:
            ignored.append(f"{_shown(name)} {list(column.shape)}")
    if ignored:
        more = f" and {len(ignored) - TOLD} more" if len(ignored) > TOLD else ""
        notes.append(
            f"Not read (no row of numbers per step, or a mask that is none): {', '.join(ignored[:TOLD])}{more}."
        )
    return extra


def _per_step(name: str, column: FileColumn, rows: int) -> bool:
    shape = column.shape
    if column.dtype.kind not in "fiub" or shape[:1] != (rows,) or 0 in shape or name in NAMES["mask"]:
        return False
    return len(shape) <= 2 or name.startswith("extra/")


def _plain(name: str) -> str:
    return re.sub(r"[/.]", "_", name)


def _shown(name: str) -> str:
    """A stranger's name, fit for a message."""
    return name if COLUMN_NAME.fullmatch(_plain(name)) else repr(name[:60])
