"""CSV files as recordings: a header line, then a row per step. What the columns are is told, or read off their names.

Rows are parsed once, some thousand at a time. Whatever is not a number is an error with its line and column; an empty
cell is NaN, which `not_finite` decides about. No package but Python's own reader is needed.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from understudy.core.errors import DataError
from understudy.data.episode import Array
from understudy.data.formats.column_map import ColumnMap, ColumnPlan, plan_columns
from understudy.data.formats.columns import FileColumn
from understudy.data.formats.flat import flat_recording
from understudy.data.formats.table_rows import TableRows, WholeNumbers, label_numbers
from understudy.data.recording import Recording, open_at_once

SUFFIXES = (".csv", ".tsv")
DELIMITERS = (",", ";", "\t")
BLOCK_ROWS, BLOCK_CHARACTERS = 4096, 4 << 20
"""Rows are parsed when so many are there, or so many characters of them."""
LONGEST_LINE = 1 << 20
LONGEST_NUMBER = 64
LONGEST_LABEL = 1000
WORDS = {"": np.nan, "na": np.nan, "n/a": np.nan, "null": np.nan, "none": np.nan, "nan": np.nan}
WORDS |= {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


def open_csv(
    path: Path, columns: ColumnMap = "", *, episode_steps: int | None = None, one_episode: bool = False
) -> Recording:
    """The recording in a CSV file. `one_episode`: where nothing marks an end, the file is one."""
    where = f"dataset '{path}'"
    plan, arrays, whole = read_csv(path, lambda names: plan_columns(columns, names, where), where)
    arranged = plan.arrange(arrays, where)
    if whole:
        arranged["actions"] = WholeNumbers(arranged["actions"])
    return flat_recording(
        arranged, path.name, where, notes=plan.notes, episode_steps=episode_steps, one_episode=one_episode
    )


def read_csv(
    path: Path, choose: Callable[[list[str]], ColumnPlan], where: str
) -> tuple[ColumnPlan, dict[str, FileColumn], bool]:
    """The chosen columns [n], and whether all actions are whole numbers."""
    try:
        with open(path, encoding="utf-8-sig", newline="", opener=open_at_once) as file:
            lines = _Lines(file, where)
            header = next(iter(lines), "")
            delimiter = max(DELIMITERS, key=header.count)
            names = _names(next(csv.reader([header], delimiter=delimiter), []), where)
            plan = choose(names)
            if not plan.parts:  # nothing but the header was asked for
                return plan, {}, False
            return plan, *_parsed(lines, delimiter, names, plan, where)
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise DataError(where, f"not readable as CSV ({error})") from error


class _Lines:
    """Lines of a file, none longer than a line of numbers can honestly be."""

    def __init__(self, file: object, where: str) -> None:
        self._file = file
        self._where = where
        self.number = 0
        self.characters = 0
        """Since somebody set it."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line: str = self._file.readline(LONGEST_LINE)  # type: ignore[attr-defined]
        if not line:
            raise StopIteration
        self.number += 1
        self.characters += len(line)
        if len(line) == LONGEST_LINE and not line.endswith("\n"):
            raise DataError(f"{self._where}, line {self.number}", f"longer than {LONGEST_LINE:,} characters")
        return line


def _names(cells: Sequence[str], where: str) -> list[str]:
    """Of the columns; what has none (an index that pandas wrote) gets its number."""
    names = [cell.strip() or f"column {number}" for number, cell in enumerate(cells)]
    if not any(cells) or all(_is_number(name) for name in names):
        raise DataError(
            f"{where}, line 1", "no names of columns", got=f"{', '.join(names[:4])!r:.100}", do="Add a header line."
        )
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parsed(
    lines: _Lines, delimiter: str, names: Sequence[str], plan: ColumnPlan, where: str
) -> tuple[dict[str, FileColumn], bool]:
    """The needed columns [n], and whether all actions are whole numbers."""
    places = [(name, names.index(name)) for name in plan.read]
    acted = [names.index(part.column) for part in plan.parts.get("actions", ())]
    record = np.dtype([(f"c{place}", np.float64) for _, place in places])
    table = TableRows(record)
    labels: dict[str, dict[object, int]] = {name: {} for name in plan.labels}
    whole = True
    for first, rows in _blocks(lines, delimiter, len(names), where):
        cells = list(zip(*rows, strict=True))
        block = np.empty(len(rows), record)
        for name, place in places:
            here = f"{where}, column '{name[:100]}'"
            block[f"c{place}"] = (
                label_numbers((cell[:LONGEST_LABEL] for cell in cells[place]), labels[name])
                if name in labels
                else _numbers(cells[place], first, here)
            )
        whole = whole and all(_whole(cell) for place in acted for cell in cells[place])
        table.append(block)
    if not table.rows:
        raise DataError(where, "has no rows")
    found = table.columns()
    return {name: found[f"c{place}"] for name, place in places}, whole


def _blocks(lines: _Lines, delimiter: str, width: int, where: str) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Rows of cells, and the line each ends on; empty lines are none."""
    ends: list[int] = []
    rows: list[list[str]] = []
    for cells in csv.reader(lines, delimiter=delimiter, strict=True):
        if not cells or (len(cells) == 1 and not cells[0].strip()):
            continue
        if len(cells) != width:
            raise DataError(
                f"{where}, line {lines.number}",
                "another number of cells than the header",
                got=len(cells),
                expected=width,
            )
        ends.append(lines.number)
        rows.append(cells)
        if len(rows) == BLOCK_ROWS or lines.characters >= BLOCK_CHARACTERS:
            yield ends, rows
            ends, rows, lines.characters = [], [], 0
    if rows:
        yield ends, rows


def _numbers(cells: Sequence[str], lines: Sequence[int], where: str) -> Array:
    """[k]: all at once where they are plain, one by one where they are not."""
    if max(map(len, cells)) <= LONGEST_NUMBER:
        try:
            return np.asarray(cells).astype(np.float64)
        except ValueError:
            pass
    return np.array([_number(cell, line, where) for cell, line in zip(cells, lines, strict=True)])


def _number(cell: str, line: int, where: str) -> float:
    text = cell.strip()
    try:
        return WORDS[text.lower()] if text.lower() in WORDS else float(text)
    except ValueError:
        do = (
            "Decimal commas are not read." if text.count(",") == 1 else "Leave the column out, or write numbers for it."
        )
        raise DataError(
            f"{where}, line {line}", "not a number", got=f"{text!r:.60}", expected="a number", do=do
        ) from None


def _whole(cell: str) -> bool:
    text = cell.strip()
    return text.isdecimal() and text.isascii() and len(text) < 19
