"""JSONL logs: how they are read, what a checkpoint knows of them, and what is left of one that was damaged.

A checkpoint knows the length and sha256 that metrics.jsonl and eval.jsonl had when it was written, so a lost or changed
byte does not pass. Then the lines that can be read are kept, the damaged file is kept beside the log, and what is lost
is told.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any

from understudy.core.errors import RunError
from understudy.core.files import read_bytes, sha256_bytes, write_bytes
from understudy.core.settings import Settings
from understudy.core.wording import counted

LARGEST = 1 << 30
"""Bytes of a log that is read whole: a line for each of a million updates has a third of it."""
MOST_TOLD = 5
"""Of so many damaged lines the numbers are told."""
METRICS = ("updates",)
SCORE = ("updates", "eval/return_mean")
EVALUATION = (*SCORE, "eval/return_low", "eval/return_high", "returns", "lengths")
HELD_OUT = ("updates", "eval/action_error")
"""What a line must have to count as one: of metrics, and of an evaluation as far as a reader needs it; where there is
no environment, held-out episodes were asked instead."""


class LogMark(Settings):
    """How far a log had come."""

    size: int
    """Its bytes."""
    lines: int
    sha256: str


def read_lines(path: Path, names: tuple[str, ...] = METRICS) -> list[dict[str, Any]]:
    """The whole lines of a log, each with these names; a torn last line is what a kill leaves and is passed over."""
    if not path.exists():
        return []
    lines = []
    for number, text in enumerate(read_bytes(path, LARGEST).split(b"\n")[:-1], 1):
        line = _parsed(text, names)
        if line is None:
            raise RunError(f"{path}, line {number}", "not readable: the file is damaged", do="Restore it, or the line.")
        lines.append(line)
    return lines


def restore_log(path: Path, updates: int, mark: LogMark | None = None, names: tuple[str, ...] = METRICS) -> str:
    """Cut a log back to an update, so that a resumed one equals an uninterrupted one byte for byte.

    Returns a sentence about what was lost before that update, or nothing. Without a mark only the lines themselves can
    tell.
    """
    content = read_bytes(path) if path.exists() else b""
    if mark is not None and sha256_bytes(content[: mark.size]) == mark.sha256:
        kept, lost = content[: mark.size], ""
    else:
        kept, lost = _readable(content, updates, mark, names)
    if lost and content and kept != content:
        lost += f"; what was there is kept as {_set_aside(path, content).name}"
    if path.exists() and (kept != content or path.stat().st_nlink > 1):  # under another name it may be somebody else's
        write_bytes(path, kept)
    return f"{path.name}: {lost}" if lost else ""


def _readable(content: bytes, updates: int, mark: LogMark | None, names: tuple[str, ...]) -> tuple[bytes, str]:
    """The lines up to an update that can be read, and what was lost with the others."""
    lines = content.split(b"\n")[:-1]
    parsed = [_parsed(line, names) for line in lines]
    kept = [number for number, line in enumerate(parsed, 1) if line is not None and line["updates"] <= updates]
    expected = mark.lines if mark is not None else max(kept, default=0)  # behind it lies what a power cut may leave
    broken = [str(number) for number, line in enumerate(parsed[:expected], 1) if line is None]
    readable = b"".join(lines[number - 1] + b"\n" for number in kept)
    if mark is None:
        return readable, f"damaged: lines that cannot be read: {_listed(broken)}" if broken else ""
    all_lines = f"{counted(expected, 'line')} up to update {updates:,}"
    lost = expected - len(kept)
    if lost <= 0:
        return readable, f"damaged: its {all_lines} can be read, but not all are what was written"
    told = f" (not readable: {_listed(broken)})" if broken else ""
    rest = "; nobody can vouch for the others" if kept else ""
    return readable, f"{'damaged' if content else 'missing or empty'}: lost {lost:,} of its {all_lines}{told}{rest}"


def _listed(numbers: list[str]) -> str:
    return ", ".join(numbers[:MOST_TOLD]) + (", …" if numbers[MOST_TOLD:] else "")


def _parsed(text: bytes, names: tuple[str, ...]) -> dict[str, Any] | None:
    """A line of a log; None for garbage."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not all(name in line for name in names) or type(line["updates"]) is not int:
        return None
    return line if all(_is_number(value) for value in line.values()) else None


def _is_number(value: object) -> bool:
    """A number, or a list of them."""
    return all(type(item) in (int, float) for item in (value if isinstance(value, list) else [value]))


def _set_aside(path: Path, content: bytes) -> Path:
    """Keep a damaged log beside the log, once."""
    for number in count(1):
        aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        if not aside.exists():
            write_bytes(aside, content)
            return aside
        if read_bytes(aside) == content:
            return aside
    raise AssertionError("counting never ends")
