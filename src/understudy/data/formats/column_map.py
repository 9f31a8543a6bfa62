"""Which columns of a table are what: `obs=temp,humidity,action=valve,reward=r,episode=day`, or the same as a dict.

A role has one column or several side by side, by name, by pattern (`obs=obs_*`) or as a part of a wide one
(`obs.arm=state[0:7]`). What comes after `obs.` is the name of an observation group. Roles that are not spoken of are
guessed where a name is unmistakable, and the guess is said; `reward=` says that there is none, and `reward=-energy`
that a column is a cost.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, final

import numpy as np

from understudy.core.errors import DataError, did_you_mean
from understudy.core.wording import counted
from understudy.data.episode import COLUMN_NAME, Array
from understudy.data.formats.columns import NAMES, FileColumn

ColumnMap = str | Mapping[str, str | Sequence[str]]
"""What a person says of the columns."""
WORDS = {name: role for role, names in NAMES.items() for name in names} | {"episode": "episode", "first": "first"}
WORDS |= {"last": "last", "final": "final_known", "extra": "extra"}
WIDE = ("observations", "next_observations", "actions", "mask", "next_mask")
"""Roles of several numbers a row: `obs_0`, `obs_1`, … are guessed as one."""
GROUPED = ("observations", "next_observations")
SEEN = (NAMES["observations"][0], NAMES["mask"][0])
"""What a policy is asked with."""
PART = re.compile(r"(?P<name>.+)\[(?P<first>\d*)(?P<range>:?)(?P<stop>\d*)\]")
SHOWN = 8
MOST = 10_000
"""Columns of a table; what is wider is an array of its own."""


@final
@dataclass(frozen=True)
class Part:
    """A column of the table, or some of its numbers."""

    column: str
    numbers: slice = field(default_factory=lambda: slice(None))
    is_cost: bool = False
    """A reward with the other sign."""

    def __str__(self) -> str:
        first, stop = self.numbers.start, self.numbers.stop
        name = f"-{self.column}" if self.is_cost else self.column
        return name if first is None and stop is None else f"{name}[{first}:{stop}]"


@final
@dataclass(frozen=True)
class ColumnPlan:
    """Columns by role, with the names that `sort_columns` knows."""

    parts: Mapping[str, tuple[Part, ...]]
    notes: tuple[str, ...]

    @property
    def read(self) -> list[str]:
        """The columns that are needed, in no one's order but the first mention's."""
        return list(dict.fromkeys(part.column for parts in self.parts.values() for part in parts))

    @property
    def labels(self) -> set[str]:
        """Columns that only tell episodes apart: any text will do."""
        told = {part.column for part in self.parts.get(NAMES["episode"][0], ())}
        return told - {
            part.column for role, parts in self.parts.items() if role != NAMES["episode"][0] for part in parts
        }

    def arrange(self, columns: Mapping[str, FileColumn], where: str) -> dict[str, FileColumn]:
        """The columns of each role side by side."""
        return {
            role: _beside(role, [(part, _signed(part, columns[part.column], where)) for part in parts], where)
            for role, parts in self.parts.items()
        }


@final
class SideBySide:
    """Columns [n] or [n, k] as one [n, K]."""

    def __init__(self, parts: Sequence[tuple[FileColumn, slice]]) -> None:
        self._parts = parts
        widths = [len(range(*numbers.indices(_width(column)))) for column, numbers in parts]
        self.shape = (parts[0][0].shape[0], sum(widths))
        self.dtype: np.dtype[Any] = np.result_type(*(column.dtype for column, _ in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice, /) -> Array:
        blocks = [np.asarray(column[rows]) for column, _ in self._parts]
        pairs = zip(blocks, self._parts, strict=True)
        return np.concatenate([block.reshape(len(block), -1)[:, numbers] for block, (_, numbers) in pairs], axis=1)


@final
class Negated:
    """A column with the other sign."""

    def __init__(self, column: FileColumn) -> None:
        self._column = column
        self.shape = column.shape
        self.dtype: np.dtype[Any] = np.result_type(column.dtype, np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice, /) -> Array:
        return np.asarray(0.0 - np.asarray(self._column[rows], self.dtype))


def plan_columns(words: ColumnMap, names: Sequence[str], where: str) -> ColumnPlan:
    """What each of a table's columns is for; whatever is not clear is an error or a sentence."""
    _check_names(names, where)
    parts = {role: _parts(role, told, names, where) for role, told in _said(words, where).items()}
    spoken = {role.split("/")[0] for role in parts}
    taken = {part.column for told in parts.values() for part in told}
    guessed = _guesses([name for name in names if name not in taken], spoken)
    whole = {**{role: told for role, told in parts.items() if told}, **guessed}
    _check_known(whole, ("observations", "actions"), names, where)
    plan = ColumnPlan(whole, ())
    return ColumnPlan(whole, (*_guess_notes(guessed), *_left_notes([name for name in names if name not in plan.read])))


def plan_observations(words: ColumnMap, names: Sequence[str], where: str) -> ColumnPlan:
    """The same of a table that only tells what is seen, and which actions are legal; other words are not asked for."""
    _check_names(names, where)
    seen = {role: told for role, told in _said(words, where).items() if role.split("/")[0] in SEEN}
    parts = {role: _parts(role, told, names, where) for role, told in seen.items()}
    guessed = _guesses(names, {role.split("/")[0] for role in parts})
    whole = {**parts, **{role: told for role, told in guessed.items() if role in SEEN}}
    _check_known(whole, ("observations",), names, where)
    return ColumnPlan(whole, ())


def observation_segments(words: ColumnMap, sizes: Mapping[str, int]) -> dict[str, dict[str, tuple[int, int]]]:
    """Names for the columns of each group, where every one was said by its own: {state: {temp: [0, 1]}}."""
    named = {}
    for role, told in _said(words, "data").items():
        head, _, group = role.partition("/")
        group = group or "state"
        if head == "observations" and _are_names(told, sizes.get(group, 0)):
            named[group] = {name: (number, number + 1) for number, name in enumerate(told)}
    return named


def action_names(words: ColumnMap, count: int) -> list[str]:
    """What a table's actions are called, as far as somebody said it by name."""
    said = [name for word, told in split_map(words, "columns").items() if WORDS.get(word) == "actions" for name in told]
    return said if _are_names(said, count) else [f"action_{number}" for number in range(count)]


def _are_names(told: Sequence[str], count: int) -> bool:
    """One for each of `count` columns, and no patterns."""
    return len(told) == count and not any(set(name) & set("*?[") for name in told)


def _check_names(names: Sequence[str], where: str) -> None:
    if len(names) > MOST:
        raise DataError(where, "too many columns", got=f"{len(names):,}", expected=f"at most {MOST:,}")
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise DataError(where, "two columns have the same name", got=repr(twice[:100]))


def _check_known(parts: Mapping[str, object], roles: Sequence[str], names: Sequence[str], where: str) -> None:
    for role in roles:
        if not any(name.split("/")[0] == role for name in parts):
            raise DataError(
                where,
                f"no column is known to be the {role}",
                got=_listed(names),
                do="Say which: --columns obs=temp,humidity,action=valve,reward=r,episode=day (in a config "
                "data.columns, from Python columns=…).",
            )


def _said(words: ColumnMap, where: str) -> dict[str, list[str]]:
    """Wanted columns by the name `sort_columns` has for their role."""
    said = split_map(words, where)
    roles: dict[str, list[str]] = {}
    plain = [word for word in said if WORDS.get(word) in GROUPED]
    named = {WORDS.get(word.split(".")[0]) for word in said if "." in word}
    for word, wanted in said.items():
        head, dot, group = word.partition(".")
        role = WORDS.get(head)
        if role is None or (dot and role not in (*GROUPED, "extra")):
            raise DataError(f"{where}, columns", f"no such role '{word}'", do=did_you_mean(head, WORDS))
        if dot and not COLUMN_NAME.fullmatch(group):
            raise DataError(f"{where}, columns, {word}", "not a usable name", expected="letters, digits, _ and -")
        if role == "extra":
            told = {f"extra/{group}": wanted} if dot else {f"extra/{_plain(name)}": [name] for name in wanted}
        elif dot or (word in plain and role in named):
            told = {f"{role}/{group or 'state'}": wanted}
        else:
            told = {NAMES[role][0]: wanted}
        for name, columns in told.items():
            if name in roles:
                raise DataError(f"{where}, columns", f"'{word}' is said twice")
            roles[name] = columns
    return roles


def mapped(
    columns: Mapping[str, FileColumn], words: ColumnMap, where: str
) -> tuple[dict[str, FileColumn], tuple[str, ...]]:
    """Columns that are there already, by the names of their roles, and what is to be said of them."""
    plan = plan_columns(words, list(columns), where)
    return plan.arrange(columns, where), plan.notes


def split_map(words: ColumnMap, where: str) -> dict[str, list[str]]:
    """The wanted columns by the word that was said for them."""
    return _split(words, where) if isinstance(words, str) else _listed_map(words, where)


def _split(words: str, where: str) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    current: list[str] | None = None
    for piece in filter(None, (piece.strip() for piece in words.split(","))):
        role, equals, name = piece.partition("=")
        if equals:
            if role.strip() in said:
                raise DataError(f"{where}, columns", f"'{role.strip()}' is said twice")
            current = said[role.strip()] = [name.strip()] if name.strip() else []
        elif current is None:
            raise DataError(f"{where}, columns", "no role before the first column", got=piece, expected="obs=…")
        else:
            current.append(piece)
    return said


def _listed_map(words: Mapping[str, str | Sequence[str]], where: str) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for role, names in words.items():
        wanted = [names] if isinstance(names, str) else names
        if (
            not isinstance(role, str)
            or not isinstance(wanted, Sequence)
            or not all(isinstance(name, str) for name in wanted)
        ):
            raise DataError(
                f"{where}, columns", "not a map of columns", got=f"{role!r}: {names!r}", expected="{'obs': ['temp']}"
            )
        said[role] = [name for name in wanted if name]
    return said


def _parts(role: str, wanted: Sequence[str], names: Sequence[str], where: str) -> tuple[Part, ...]:
    here, is_reward = f"{where}, columns, {role}", role == NAMES["rewards"][0]
    found = [part for word in wanted for part in _matching(word, names, here, is_reward=is_reward)]
    if len(set(map(str, found))) < len(found):
        raise DataError(f"{where}, columns, {role}", "takes a column twice", got=", ".join(map(str, found)))
    if len(found) > 1 and role.split("/", maxsplit=1)[0] not in {*(NAMES[wide][0] for wide in WIDE), *WIDE, "extra"}:
        raise DataError(
            f"{where}, columns, {role}", "is one number a row", got=", ".join(map(str, found)), expected="one column"
        )
    return tuple(found)


def _matching(word: str, names: Sequence[str], where: str, *, is_reward: bool = False) -> list[Part]:
    """A name first of all; then a cost; then a part of a wide column; then a pattern, in the table's order."""
    if word in names:
        return [Part(word)]
    if is_reward and word.startswith("-"):
        return [replace(part, is_cost=True) for part in _matching(word[1:].strip(), names, where)]
    if (part := PART.fullmatch(word)) and part["name"] in names and (part["first"] or part["range"]):
        first = int(part["first"] or 0)
        stop = (int(part["stop"]) if part["stop"] else None) if part["range"] else first + 1
        return [Part(part["name"], slice(first, stop))]
    found = [Part(name) for name in names if fnmatchcase(name, word)] if "*" in word or "?" in word else []
    if not found:
        raise DataError(where, f"no column '{word}'", do=did_you_mean(word, names))
    return found


def _guesses(names: Sequence[str], spoken: set[str]) -> dict[str, tuple[Part, ...]]:
    """Roles nobody spoke of, by the names that flat files have for them, also numbered: `obs_0`, `obs.0`, `obs[0]`."""
    guessed: dict[str, tuple[Part, ...]] = {}
    for role, known in NAMES.items():
        if known[0] in spoken:
            continue
        for word in known:
            if word in names:
                guessed[NAMES[role][0]] = (Part(word),)
                break
            numbered = [name for name in names if re.fullmatch(rf"{word}[_.\[ ]?\d+\]?", name)]
            if numbered and role in WIDE:
                ordered = sorted(numbered, key=lambda name: int(re.findall(r"\d+", name)[-1]))
                guessed[NAMES[role][0]] = tuple(map(Part, ordered))
                break
    return guessed


def _guess_notes(guessed: Mapping[str, tuple[Part, ...]]) -> list[str]:
    told = [f"{role} = {_listed([str(part) for part in parts])}" for role, parts in guessed.items()]
    return [f"Read off the columns' names: {'; '.join(told)}."] if told else []


def _left_notes(left: Sequence[str]) -> list[str]:
    return [f"Not read: {_listed(left)}."] if left else []


def _listed(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - SHOWN, 'more column')}" if len(names) > SHOWN else ""
    return ", ".join(name if name.isprintable() else repr(name[:60]) for name in names[:SHOWN]) + more


def _beside(role: str, parts: Sequence[tuple[Part, FileColumn]], where: str) -> FileColumn:
    for part, column in parts:
        _checked_numeric(part, column, where)
        beyond = part.numbers.stop is not None and part.numbers.stop > _width(column)
        if beyond or (part.numbers.start or 0) >= _width(column):
            raise DataError(
                f"{where}, columns, {role}", f"no such part '{part}'", expected=f"0 to {_width(column) - 1}"
            )
    ((first, column), *others) = parts
    whole = not others and first.numbers == slice(None)
    if whole and (len(column.shape) > 1 or role.split("/", maxsplit=1)[0] not in GROUPED):
        return column
    if any(len(column.shape) > 2 for _, column in parts):
        raise DataError(
            f"{where}, columns, {role}", "only columns of vectors stand side by side", got=list(column.shape)
        )
    if len({column.shape[0] for _, column in parts}) > 1:
        raise DataError(f"{where}, columns, {role}", "columns of different lengths")
    return SideBySide([(column, part.numbers) for part, column in parts])


def _signed(part: Part, column: FileColumn, where: str) -> FileColumn:
    return Negated(_checked_numeric(part, column, where)) if part.is_cost else column


def _checked_numeric(part: Part, column: FileColumn, where: str) -> FileColumn:
    if column.dtype.kind not in "fiub":
        raise DataError(f"{where}, column '{part.column}'", "not numeric", got=column.dtype, expected="numbers")
    return column


def _width(column: FileColumn) -> int:
    return int(np.prod(column.shape[1:])) if len(column.shape) > 1 else 1


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:100]
