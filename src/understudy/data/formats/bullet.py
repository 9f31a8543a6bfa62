"""Files of d4rl-pybullet, whose rows are shifted: a row's reward came with its observation, not after its action.

Its collector stores (observation, action, reward that arrived with the observation, whether it is terminal), and
appends a row for the final observation with a zero action. So m rows are m observations and m − 1 steps, and the
reward of a step lies in the row after it. Time limits are stored as terminals.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.wording import counted
from understudy.data.episode import Episode, check_flags
from understudy.data.formats.columns import FileColumn
from understudy.data.recording import Recording

COLUMNS = {"observations", "actions", "rewards", "terminals"}
BLOCK_BYTES = 16 << 20


def is_bullet(columns: Mapping[str, FileColumn], where: str) -> bool:
    """Only those columns; every terminal row has a zero action, and every episode begins with a zero reward.

    A continuous action is never exactly zero by chance, so one terminal row is enough; but other rows must not be.
    """
    if columns.keys() != COLUMNS or columns["actions"].dtype.kind != "f" or len(columns["actions"].shape) != 2:
        return False
    rows = len(columns["actions"])
    if any(
        len(columns[name]) != rows or int(np.prod(columns[name].shape)) != rows for name in ("rewards", "terminals")
    ):
        return False
    terminal = _flags(columns, where)
    starts = np.flatnonzero(np.append(True, terminal[:-1]))
    rewards = np.asarray(columns["rewards"][:]).reshape(-1)
    if not terminal.any() or rewards[starts].any():
        return False
    idle = _idle(columns["actions"])
    return bool(idle[terminal].all() and idle[~terminal].mean() < 0.5) if not terminal.all() else False


def bullet_recording(columns: Mapping[str, FileColumn], name: str, where: str, notes: tuple[str, ...]) -> Recording:
    """The rows realigned, however the file was recognised."""
    if not columns.keys() >= COLUMNS:
        missing = ", ".join(sorted(COLUMNS - columns.keys()))
        raise DataError(where, "not a d4rl-pybullet file", got=f"no {missing}", expected=", ".join(sorted(COLUMNS)))
    terminal = _flags(columns, where)
    rows = len(terminal)
    for column in sorted(COLUMNS):
        if columns[column].shape[:1] != (rows,):
            raise DataError(f"{where}, {column}", "has another number of rows", got=len(columns[column]), expected=rows)
    ends = np.union1d(np.flatnonzero(terminal), [rows - 1]).astype(np.int64) + 1
    starts = np.append(0, ends[:-1])
    whole = ends - starts > 1
    reader = BulletReader(columns, starts[whole], ends[whole], terminal)
    steps = int((ends - starts - 1)[whole].sum())
    if steps == 0:
        raise DataError(where, "has no episode of two rows")
    return Recording(
        name, steps, reader.play, layout="d4rl-pybullet", notes=(*notes, *reader.notes(int((~whole).sum())))
    )


@dataclass(frozen=True)
class BulletReader:
    """Plays episodes of shifted rows; an episode is the rows start to end − 1, each array [E]."""

    columns: Mapping[str, FileColumn]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    terminal: NDArray[np.bool_]

    def play(self) -> Iterator[Episode]:
        rows_at_once = _rows_at_once([self.columns[name] for name in COLUMNS])
        number = 0
        while number < len(self.starts):
            first = int(self.starts[number])
            stop = max(number + 1, int(np.searchsorted(self.ends, first + rows_at_once, side="right")))
            end = int(self.ends[stop - 1])
            block = {name: np.asarray(self.columns[name][first:end]) for name in COLUMNS}
            for episode in range(number, stop):
                rows = slice(int(self.starts[episode]) - first, int(self.ends[episode]) - first)
                yield Episode(
                    {"state": block["observations"][rows]},
                    block["actions"][rows][:-1],
                    block["rewards"][rows].reshape(-1)[1:],
                    terminated=bool(self.terminal[self.ends[episode] - 1]),
                    truncated=False,
                )
            number = stop

    def notes(self, single: int) -> list[str]:
        ended = int(self.terminal[self.ends - 1].sum())
        notes = [
            f"d4rl-pybullet layout: rewards moved to the step they followed, {ended} appended final rows are final "
            "observations, not steps.",
            "d4rl-pybullet stores time limits as terminals: set time_limit=1000 (or the environment's limit).",
        ]
        if single:
            notes.append(f"Left out: {counted(single, 'episode')} of a single row, which is no step.")
        if ended < len(self.ends):
            notes.append("The last episode is unfinished: read as cut off, not as terminal.")
        return notes


def _flags(columns: Mapping[str, FileColumn], where: str) -> NDArray[np.bool_]:
    return check_flags(np.asarray(columns["terminals"][:]).reshape(-1), f"{where}, terminals")


def _idle(actions: FileColumn) -> NDArray[np.bool_]:
    """Which rows have an all-zero action [N], read in blocks."""
    size = _rows_at_once([actions])
    parts = [~np.asarray(actions[first : first + size]).any(1) for first in range(0, len(actions), size)]
    return np.concatenate(parts)


def _rows_at_once(columns: list[FileColumn]) -> int:
    row = sum(int(np.prod(column.shape[1:])) * column.dtype.itemsize for column in columns)
    return max(1, BLOCK_BYTES // max(1, row))
