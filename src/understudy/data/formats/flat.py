"""Flat columns as a recording: rows in a row, cut into episodes at their boundaries.

Flat files lose the observation after the last step of an episode, because the next row belongs to the next one. Where
`next_observations` holds it, it is put back; where that column was overwritten by the reset of the next episode, or
does not exist, the episode says so. Rows are read in blocks of some megabytes: a file of any size needs little memory.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace
from understudy.core.wording import counted
from understudy.data.episode import Array, Episode
from understudy.data.formats.boundaries import Boundaries, Flags, find_boundaries, read_flags
from understudy.data.formats.columns import FileColumn, Table, sort_columns
from understudy.data.formats.env_axis import has_env_axis, without_env_axis
from understudy.data.recording import NO_REWARDS, Recording

BLOCK_BYTES = 16 << 20
MOST = 0.5
MISALIGNED = (
    "Most rows disagree: the column is shifted or of other data. Write the file without it, and successors are read "
    "from the next row."
)
SAMPLED_ENDS = 32
"""So many ends are looked at to tell whether next_observations was overwritten by resets."""


def flat_recording(
    columns: Mapping[str, FileColumn],
    name: str,
    where: str,
    *,
    space: ActionSpace | None = None,
    env: str = "",
    notes: tuple[str, ...] = (),
    facts: Mapping[str, Any] | None = None,
    episode_steps: int | None = None,
    one_episode: bool = False,
) -> Recording:
    """The episodes in columns of n rows each; names as in `columns.NAMES`, groups as `observations/<group>`.

    Longer episodes are cut after `episode_steps`: only here can that be done to a file that marks no end at all.
    `one_episode`: such a file is one, as one of many in a folder is.
    """
    if has_env_axis(columns):
        columns, told_axis = without_env_axis(columns, where)
        notes = (*notes, *told_axis)
    with _in_memory(where):
        table = sort_columns(columns, where)
        boundaries = find_boundaries(table, lambda: find_jumps(table), where, episode_steps, one_episode)
        known = read_flags(table, "final_known", where) if "final_known" in table.flags else None
        reader = FlatReader(table, boundaries, known, where)
        own_notes = reader.notes()
    told = {} if table.rewards is not None else NO_REWARDS
    return Recording(
        name,
        table.rows,
        reader.play,
        space,
        _layout(table),
        env,
        (*notes, *table.notes, *boundaries.notes, *own_notes),
        {**(facts or {}), **told},
    )


@contextmanager
def _in_memory(where: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise DataError(where, "does not fit into memory") from error


def _layout(table: Table) -> str:
    if table.rewards is None:
        return "states-actions"
    if "first" in table.flags:
        return "sb2"
    return "flat" if table.episode is None else "flat+episode_id"


@dataclass(frozen=True)
class FlatReader:
    """Plays episodes out of a table; everything but the flags stays in the file until it is needed."""

    table: Table
    boundaries: Boundaries
    known: Flags | None
    """Which rows have their true successor [n], if the file itself says it."""
    where: str

    def play(self) -> Iterator[Episode]:
        starts, ends = self.boundaries.starts, self.boundaries.ends
        number = 0
        while number < len(starts):
            first = int(starts[number])
            stop = int(np.searchsorted(ends, first + self._block_rows, side="right"))
            stop = max(stop, number + 1)
            inner = ends[number:stop] - first
            with _in_memory(self.where):
                block = self._read(first, int(ends[stop - 1]))
                self._check_chain(block, inner, first)
                known = self._final_known(block, inner, first)
                by_clock = self.boundaries.clocked[number:stop]
                known[by_clock] &= self._elsewhere(block, inner[by_clock])
            for episode, start, end in zip(range(number, stop), starts[number:stop] - first, inner, strict=True):
                yield self._episode(block, episode, int(start), int(end), bool(known[episode - number]))
            number = stop

    @cached_property
    def _columns(self) -> dict[str, FileColumn]:
        table = self.table
        named = {f"observation.{group}": column for group, column in table.observations.items()}
        named |= {f"next.{group}": column for group, column in table.successors.items()}
        named |= {f"extra.{name}": column for name, column in table.extra.items()}
        named |= {"actions": table.actions, **table.masks}
        return named if table.rewards is None else {**named, "rewards": table.rewards}

    @cached_property
    def _block_rows(self) -> int:
        size = sum(int(np.prod(column.shape[1:])) * column.dtype.itemsize for column in self._columns.values())
        return max(1, BLOCK_BYTES // max(1, size))

    def _read(self, first: int, end: int) -> dict[str, Array]:
        """Rows first to end − 1 of every column, and one observation more where there is one."""
        ahead = {name: int(name.startswith("observation.") and end < self.table.rows) for name in self._columns}
        return {name: np.asarray(column[first : end + ahead[name]]) for name, column in self._columns.items()}

    def _episode(self, block: Mapping[str, Array], number: int, first: int, end: int, known: bool) -> Episode:
        """Rows first to end − 1 of a block."""
        bounds, table = self.boundaries, self.table
        terminated = bool(bounds.terminated[number])
        mask = self._mask(block, first, end, terminated, known)
        known = known and (mask is None or len(mask) == end - first + 1)
        rewards = np.zeros(end - first, np.float32) if table.rewards is None else block["rewards"][first:end]
        return Episode(
            {group: self._group(block, group, first, end, known) for group in table.observations},
            block["actions"][first:end],
            rewards.reshape(-1),
            terminated,
            bool(bounds.truncated[number]),
            known,
            mask,
            {name: block[f"extra.{name}"][first:end] for name in table.extra},
        )

    @staticmethod
    def _group(block: Mapping[str, Array], group: str, first: int, end: int, known: bool) -> Array:
        """An observation group of one episode: [n+1, …], or [n, …] without its final one."""
        seen = block[f"observation.{group}"][first:end]
        return np.concatenate([seen, block[f"next.{group}"][end - 1 : end]]) if known else seen

    def _final_known(self, block: Mapping[str, Array], ends: NDArray[np.int64], offset: int) -> Flags:
        """Whether the last row of each episode in a block has its true successor [B]."""
        if not self.table.successors or (self.known is None and self.overwritten):
            return np.zeros(len(ends), bool)
        if self.known is not None:
            return self.known[offset + ends - 1]
        known = np.ones(len(ends), bool)
        followed = offset + ends < self.table.rows
        known[followed] = ~lost_finals(
            {group: block[f"next.{group}"][ends[followed] - 1] for group in self.table.successors},
            {group: block[f"observation.{group}"][ends[followed]] for group in self.table.observations},
        )
        for group in self.table.successors:
            known &= ~_all_nan(block[f"next.{group}"][ends - 1])
        return known

    def _elsewhere(self, block: Mapping[str, Array], ends: NDArray[np.int64]) -> Flags:
        """Whether the successor of each end that only the clock knows of is another observation than the next row [B].

        Where it is the next row, nobody can tell the episode's own end from the beginning of another.
        """
        elsewhere = np.zeros(len(ends), bool)
        for group in self.table.successors:
            elsewhere |= differing_rows(block[f"observation.{group}"][ends], block[f"next.{group}"][ends - 1])
        return elsewhere

    @cached_property
    def _sampled(self) -> tuple[int, int]:
        """How many ends were looked at, and how many of them lost their final observation."""
        ends = self.boundaries.ends[:-1][~self.boundaries.clocked[:-1]]
        picked = ends[np.unique(np.linspace(0, len(ends) - 1, SAMPLED_ENDS).astype(int))] if len(ends) else ends
        table = self.table
        lost = [
            lost_finals(
                {group: np.asarray(column[end - 1 : end]) for group, column in table.successors.items()},
                {group: np.asarray(column[end : end + 1]) for group, column in table.observations.items()},
            )[0]
            for end in picked.tolist()
        ]
        return len(picked), sum(lost)

    @cached_property
    def overwritten(self) -> bool:
        """At least half of the ends lost their final observation: whoever wrote the file lost them all."""
        looked, lost = self._sampled
        return lost > 0 and 2 * lost >= looked

    def _mask(
        self, block: Mapping[str, Array], first: int, end: int, terminated: bool, known: bool
    ) -> NDArray[Any] | None:
        """Legal actions of the episode's observations; without that of the final one unless it is known or idle."""
        if "mask" not in block:
            return None
        mask = block["mask"][first:end]
        if not known:
            return mask
        if "next_mask" in block:
            return np.concatenate([mask, block["next_mask"][end - 1 : end]])
        return np.concatenate([mask, np.ones_like(mask[:1])]) if terminated else mask

    def _check_chain(self, block: Mapping[str, Array], ends: NDArray[np.int64], offset: int) -> None:
        """Inside an episode, row i's successor is row i+1, up to float32 rounding."""
        for group in self.table.successors:
            told = block[f"next.{group}"][:-1]
            differ = differing_rows(block[f"observation.{group}"][1 : len(told) + 1], told)
            differ[ends[:-1] - 1] = False
            if differ.any():
                self._refuse_jump(told, differ, offset)

    def _refuse_jump(self, told: Array, differ: NDArray[np.bool_], offset: int) -> None:
        row = int(differ.argmax())
        strange = np.argwhere(~np.isfinite(told[row]))
        if len(strange):
            column = f", column {', '.join(map(str, strange[0]))}" if strange.size else ""
            raise DataError(f"{self.where}, next_observations, row {offset + row}{column}", "not finite")
        raise DataError(
            self.where,
            f"next_observations of row {offset + row} is not the observation of row {offset + row + 1}",
            do=MISALIGNED
            if differ.mean() > MOST
            else "Mark episode ends with `timeouts`, `terminals` or `episode_id`.",
        )

    def notes(self) -> list[str]:
        """What the columns lack, in sentences."""
        table, notes = self.table, []
        if table.rewards is None:
            notes.append("No rewards: they are read as 0, and only imitation makes sense.")
        open_ends = int((~self.boundaries.terminated).sum())
        if not table.successors and open_ends:
            whose = "each episode" if not self.boundaries.terminated.any() else counted(open_ends, "episode")
            notes.append(
                f"No next_observations: the last step of {whose} has no successor and is left out of bootstrapped "
                "losses."
            )
        if table.successors and self.known is None and self._sampled[1]:
            looked, lost = self._sampled
            which = "all final observations are taken as" if self.overwritten else "such final observations are"
            notes.append(
                f"At {lost} of {looked} ends looked at, next_observations is blank or the first observation of the "
                f"next episode (an automatic reset): {which} unknown."
            )
        if "mask" in table.masks and "next_mask" not in table.masks and table.successors and open_ends:
            notes.append("No next_mask: final observations of episodes that do not terminate are left out.")
        return notes


def lost_finals(finals: Mapping[str, Array], heads: Mapping[str, Array]) -> Flags:
    """Which final observations are the next episode's first to the bit (automatic resets), or blank (padding) [B].

    Worlds of whole numbers repeat their states, so only real numbers tell.
    """
    count = len(next(iter(finals.values())))
    if all(values.dtype.kind != "f" for values in finals.values()):
        return np.zeros(count, bool)
    equal, blank, lively = np.ones(count, bool), np.ones(count, bool), np.zeros(count, bool)
    for group, final in finals.items():
        columns = tuple(range(1, final.ndim))
        equal &= (final == heads[group]).all(axis=columns)
        blank &= ~final.any(axis=columns)
        lively |= heads[group].any(axis=columns)
    return equal | (blank & lively)


def _all_nan(rows: Array) -> Flags:
    """Which rows [n] hold no number at all: who writes so does not know them."""
    if rows.dtype.kind != "f":
        return np.zeros(len(rows), bool)
    return np.asarray(np.isnan(rows).reshape(len(rows), -1).all(axis=1))


def find_jumps(table: Table) -> Flags:
    """Rows whose successor is not the next row [n], read in blocks; the last row has no next one."""
    jumps = np.zeros(table.rows, bool)
    for group, column in table.observations.items():
        size = int(np.prod(column.shape[1:])) * column.dtype.itemsize
        rows = max(1, BLOCK_BYTES // max(1, size))
        for first in range(0, table.rows - 1, rows):
            end = min(first + rows, table.rows - 1)
            seen = np.asarray(column[first + 1 : end + 1])
            jumps[first:end] |= differing_rows(seen, np.asarray(table.successors[group][first:end]))
    return jumps


def differing_rows(seen: Array, told: Array) -> Flags:
    """Which rows [n] differ by more than float32 rounding; an observation that is not finite is told elsewhere."""
    columns = tuple(range(1, seen.ndim))
    differ: Flags = (seen != told).any(axis=columns)
    rows = np.flatnonzero(differ)
    here, there = np.asarray(seen[rows], np.float64), np.asarray(told[rows], np.float64)
    with np.errstate(invalid="ignore"):
        close = np.isfinite(there) & (np.abs(here - there) <= 1e-6 * (1.0 + np.abs(there)))
    differ[rows] = (np.isfinite(here) & ~close).any(axis=columns)
    return differ
