"""Trajectories laid end to end, as the `imitation` library saves them: n+1 observations for n actions of each.

`indices` (or `split`) are the actions at which a new trajectory begins, without the first; `terminal` has one flag per
trajectory. `imitation` calls a trajectory terminal when its episode was over, a time limit included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.episode import Array, Episode, check_flags
from understudy.data.formats.columns import NAMES, FileColumn
from understudy.data.recording import NO_REWARDS, Recording

CUTS = ("indices", "split")
READ = {*NAMES["observations"], *NAMES["actions"], *NAMES["rewards"], *NAMES["terminated"], *CUTS}


def is_imitation(columns: Mapping[str, FileColumn]) -> bool:
    """Cuts, and more observations than actions; a flat file may have a column of that name, too."""
    rows = [columns[name].shape[:1] for role in ("observations", "actions") if (name := _name(columns, NAMES[role]))]
    return bool(_name(columns, CUTS)) and len(set(rows)) == 2


def imitation_recording(columns: Mapping[str, FileColumn], name: str, where: str) -> Recording:
    """The trajectories of one file as episodes."""
    cuts = _whole_numbers(_column(columns, CUTS, where), f"{where}, {_name(columns, CUTS)}")
    observations, actions = (_column(columns, NAMES[role], where) for role in ("observations", "actions"))
    ends = np.append(cuts, len(actions))
    count = len(ends)
    if (np.diff(ends, prepend=0) <= 0).any():
        raise DataError(where, f"'{_name(columns, CUTS)}' does not cut {len(actions)} actions in rising order")
    if len(observations) != len(actions) + count:
        raise DataError(
            where,
            f"has {count} trajectories with {len(actions)} actions in all, and {len(observations)} observations",
            expected=len(actions) + count,
            do="Each trajectory of n actions has n+1 observations.",
        )
    rewards = _rewards(columns, len(actions), where)
    terminal = _terminal(columns, count, where)
    player = Trajectories(observations, actions, rewards, ends, terminal)
    missing = "rewards" if rewards is None else ""
    return Recording(
        name,
        len(actions),
        player.play,
        layout="imitation",
        notes=_notes(columns, terminal, missing),
        facts=NO_REWARDS if missing else {},
    )


@dataclass(frozen=True)
class Trajectories:
    observations: FileColumn
    actions: FileColumn
    rewards: Array | None
    ends: NDArray[np.int64]
    terminal: NDArray[np.bool_]

    def play(self) -> Iterator[Episode]:
        start = 0
        for number, end in enumerate(self.ends.tolist()):
            yield Episode(
                {"state": np.asarray(self.observations[start + number : end + number + 1])},
                np.asarray(self.actions[start:end]),
                np.zeros(end - start, np.float32) if self.rewards is None else self.rewards[start:end],
                terminated=bool(self.terminal[number]),
                truncated=False,
            )
            start = end


def _name(columns: Mapping[str, FileColumn], names: tuple[str, ...]) -> str:
    return next((name for name in names if name in columns), "")


def _column(columns: Mapping[str, FileColumn], names: tuple[str, ...], where: str) -> FileColumn:
    name = _name(columns, names)
    if not name:
        raise DataError(where, f"has no array '{names[0]}'")
    column = columns[name]
    if column.dtype.kind not in "fiub":
        raise DataError(f"{where}, {name}", "not numeric", got=column.dtype, expected="float, integer or bool")
    if len(column.shape) == 0 or 0 in column.shape[1:]:
        raise DataError(f"{where}, {name}", "wrong shape", got=column.shape, expected="rows of numbers")
    return column


def _whole_numbers(column: FileColumn, where: str) -> NDArray[np.int64]:
    if column.dtype.kind not in "iu" or len(column.shape) != 1:
        raise DataError(
            where, "wrong kind of array", got=f"{column.dtype} {column.shape}", expected="whole numbers [E-1]"
        )
    return np.asarray(column[:], np.int64)


def _rewards(columns: Mapping[str, FileColumn], rows: int, where: str) -> Array | None:
    if not _name(columns, NAMES["rewards"]):
        return None
    rewards = _column(columns, NAMES["rewards"], where)
    if rewards.shape not in {(rows,), (rows, 1)}:
        raise DataError(
            where,
            f"array '{_name(columns, NAMES['rewards'])}' has the wrong shape",
            got=rewards.shape,
            expected=(rows,),
        )
    return np.asarray(rewards[:]).reshape(-1)


def _terminal(columns: Mapping[str, FileColumn], count: int, where: str) -> NDArray[np.bool_]:
    name = _name(columns, NAMES["terminated"])
    if not name:
        return np.zeros(count, bool)
    column = _column(columns, NAMES["terminated"], where)
    if column.shape != (count,):
        raise DataError(f"{where}, {name}", "not one flag per trajectory", got=column.shape, expected=(count,))
    return check_flags(np.asarray(column[:]), f"{where}, {name}")


def _notes(columns: Mapping[str, FileColumn], terminal: NDArray[np.bool_], missing: str) -> tuple[str, ...]:
    notes = []
    if terminal.any():
        notes.append(
            f"{int(terminal.sum())} trajectories are marked terminal, which this layout also says of time limits: read "
            "as terminal. If they are time limits, set time_limit to their length."
        )
    if missing:
        notes.append("No rewards: they are read as 0, and only imitation makes sense.")
    ignored = sorted(name for name in columns if name not in READ)
    if ignored:
        notes.append(f"Not read: {', '.join(name[:60] for name in ignored[:8])}.")
    return tuple(notes)
