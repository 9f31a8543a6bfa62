"""Where the episodes of a flat file begin, and how each ended.

Three things mark an end: a flag of the row (`terminals`, `timeouts`, `dones`, `episode_end`), a new `episode_id` or
`episode_starts` in the next row, and, in files that have neither time limits nor ids, an observation that is not the
`next_observations` of the row before it. The end of the array says nothing. Of which kind an end is, is only believed
where the file says so: what is not known to be terminal is never read as terminal, except `dones` alone, with a note.
Where nothing marks time limits, a clock may: `episode_steps` cuts what is longer, as `pieces` does with whole episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.wording import counted
from understudy.data.episode import check_flags
from understudy.data.formats.columns import Table

Flags = NDArray[np.bool_]
ALONE = "Nothing marks an end: each file is one episode, read as cut off, not as terminal."


@dataclass(frozen=True)
class Boundaries:
    """Every array is [E]; an episode is the rows start to end − 1."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    terminated: Flags
    truncated: Flags
    clocked: Flags
    """Ends that only the clock knows of."""
    notes: tuple[str, ...]


def find_boundaries(
    table: Table, jumps: Callable[[], Flags], where: str, episode_steps: int | None = None, one_episode: bool = False
) -> Boundaries:
    """`jumps()` [n]: rows whose successor is not the next row; asked only where nothing else marks time limits."""
    flags = {role: read_flags(table, role, where) for role in table.flags}
    notes: list[str] = []
    marked = _flagged(flags, table.rows)
    if table.episode is not None:
        marked = _checked(_id_ends(table, where, notes), marked, "the next row has the same episode_id", where)
    elif "first" in flags:
        starts = np.append(flags["first"][1:], False)
        marked = _checked(starts, marked, "the next row is not marked as the start of one", where)
    elif not {"truncated", "last"} & flags.keys():
        marked = _with_jumps(marked, jumps(), notes) if table.successors else marked
    endless = table.episode is None and "first" not in flags and not marked.any()
    if endless and episode_steps is None and not one_episode:
        raise DataError(
            where,
            "has no episode boundary: no terminal, no timeout, no episode_id",
            do="Add `timeouts` (True at the last step of each episode) or `episode_id`; or, if only a time limit ended "
            "them, set episode_steps (as in episode_steps=1000).",
        )
    last = np.union1d(np.flatnonzero(marked), [table.rows - 1]).astype(np.int64)
    terminated, truncated = _kinds(flags, marked, last, notes)
    starts = np.concatenate([[0], last[:-1] + 1]).astype(np.int64)
    alone = endless and one_episode and episode_steps is None
    notes += [ALONE] if alone else _kind_notes(table, marked, last, terminated | truncated)
    found = Boundaries(starts, last + 1, terminated, truncated, np.zeros(len(last), bool), tuple(notes))
    if episode_steps is not None:
        found = _cut(found, episode_steps)
    return found if marked[-1] or _by_row(table) or alone else _unfinished(found)


def read_flags(table: Table, role: str, where: str) -> Flags:
    name, column = table.flags[role]
    return check_flags(np.asarray(column[:]).reshape(-1), f"{where}, {name}")


def _flagged(flags: dict[str, Flags], rows: int) -> Flags:
    """Rows that their own flags call the last of an episode."""
    marked = np.zeros(rows, bool)
    for role in ("terminated", "truncated", "done", "last"):
        marked |= flags.get(role, False)
    return marked


def _checked(ends: Flags, flagged: Flags, contradiction: str, where: str) -> Flags:
    """Ends by id or start; a flag in the middle of an episode contradicts them."""
    inside = np.flatnonzero(flagged[:-1] & ~ends[:-1])
    if len(inside):
        raise DataError(f"{where}, row {inside[0]}", f"ends an episode, but {contradiction}")
    ends[-1] = flagged[-1]
    return ends


def _id_ends(table: Table, where: str, notes: list[str]) -> Flags:
    assert table.episode is not None
    ids = np.asarray(table.episode[:]).reshape(-1)
    whole = np.isfinite(ids) & (ids == np.floor(ids))
    if not whole.all():
        row = int(np.flatnonzero(~whole)[0])
        raise DataError(f"{where}, episode_id, row {row}", "not a whole number", got=ids[row])
    ends = np.append(ids[1:] != ids[:-1], False)
    heads = np.flatnonzero(np.append(True, ends[:-1]))
    returning = len(heads) - len(np.unique(ids[heads]))
    if returning and np.median(np.diff(np.append(heads, len(ids)))) == 1:
        raise DataError(
            f"{where}, episode_id",
            "the rows of its episodes are interleaved",
            do="Sort the rows by episode (stable), so that each episode is one run of rows.",
        )
    if returning:
        notes.append(
            f"{counted(returning, 'episode id')} seen again later in the file: every run of equal ids is an episode."
        )
    return ends


def _with_jumps(marked: Flags, jumps: Flags, notes: list[str]) -> Flags:
    found = int((jumps & ~marked).sum())
    if found:
        notes.append(
            f"Found {counted(found, 'episode end')} where next_observations is not the next row (no flag marks them)."
        )
    return marked | jumps


def _kinds(flags: dict[str, Flags], marked: Flags, last: NDArray[np.int64], notes: list[str]) -> tuple[Flags, Flags]:
    """Which ends are terminal and which are cuts [E]; an end of unknown kind is neither."""
    ended, cut, done = (flags.get(role) for role in ("terminated", "truncated", "done"))
    nowhere = np.zeros(len(marked), bool)
    if ended is not None:
        terminal = ended
        if both := int((ended & (nowhere if cut is None else cut)).sum()):
            notes.append(f"{both} rows are marked terminal and time limit: read as terminal.")
    elif done is not None:
        terminal = done if cut is None else done & ~cut
        notes.append(_done_note(done, cut))
    else:
        terminal = nowhere
    says_not_terminal = ended is not None or done is not None
    beyond = marked if cut is None and says_not_terminal else (nowhere if cut is None else cut)
    return terminal[last], (beyond & ~terminal)[last]


def _done_note(done: Flags, cut: Flags | None) -> str:
    if cut is not None:
        return f"{int((done & cut).sum())} dones are time limits and {int((done & ~cut).sum())} are terminal."
    return (
        f"`dones` does not say whether the world ended or the time ran out: {int(done.sum())} ends are read as "
        "terminal. If some are time limits, set time_limit to their length."
    )


def _cut(found: Boundaries, limit: int) -> Boundaries:
    """No episode longer than `limit` rows; the clock starts with every episode."""
    counts = -((found.starts - found.ends) // limit)
    whole = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(whole)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = found.starts[whole] + number * limit
    ends = np.minimum(starts + limit, found.ends[whole])
    last = ends == found.ends[whole]
    terminated = found.terminated[whole] & last
    truncated = ~terminated & ((ends - starts == limit) | found.truncated[whole])
    longer = counted(int((counts > 1).sum()), "episode")
    told = f"{longer} longer than episode_steps={limit}: cut there."
    return Boundaries(starts, ends, terminated, truncated, ~last, (*found.notes, told))


def _unfinished(found: Boundaries) -> Boundaries:
    if found.truncated[-1]:  # the clock struck just there
        return found
    steps = counted(int(found.ends[-1] - found.starts[-1]), "step")
    told = f"The last episode ({steps}) is unfinished: read as cut off, not as terminal."
    return replace(found, notes=(*found.notes, told))


def _by_row(table: Table) -> bool:
    """Ends show in the row after them."""
    return table.episode is not None or "first" in table.flags


def _kind_notes(table: Table, marked: Flags, last: NDArray[np.int64], known: Flags) -> list[str]:
    """Sentences on ends whose kind the file does not tell."""
    notes = []
    if table.episode is None and not table.successors and table.flags.keys() <= {"terminated"}:
        notes.append(
            "Nothing in the file marks time limits: an episode may run on across one. If there is one, set "
            "episode_steps to it."
        )
    unknown = int((~known & (marked[last] | _by_row(table))).sum())
    if unknown:
        notes.append(
            f"{counted(unknown, 'episode end')} without the file saying why: read as cut off, not as terminal. "
            "If the world ended there, add `terminals`."
        )
    return notes
