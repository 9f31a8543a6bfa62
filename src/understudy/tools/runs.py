"""The runs below a folder and how each stands: `understudy runs`. Nothing in a folder can stop it: what cannot be read
is listed as such, nothing is followed out of the folder, and of a log only its end is read."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from understudy.core.errors import UnderstudyError
from understudy.core.files import open_regular
from understudy.core.lock import is_locked
from understudy.run.loop import CALLBACK, INTERRUPTED
from understudy.run.plots import as_float
from understudy.run.rundir import RunDir, StopNote
from understudy.run.yaml_text import read_yaml

DEEPEST = 8
"""Folders below the one that is listed."""
MOST_FOLDERS = 20_000
MOST_CONFIG = 1 << 20
"""Bytes of a config: ours have thousands."""
TAIL = 1 << 20
"""Bytes of a log's end in which its last line is looked for."""
LONGEST = 60
"""Characters of a name that a stranger's file may give itself."""
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
DAMAGED = "damaged"


@final
@dataclass(frozen=True)
class RunRow:
    """One run as a list shows it."""

    path: Path
    state: str
    """finished, running, stopped, failed, killed; damaged if it cannot be read."""
    algorithm: str
    task: str
    updates: int
    planned: int
    numbers: Mapping[str, float]
    """Of its last evaluation: return, score, success, or action error."""
    age: float
    """Seconds since it was last written."""
    note: str = ""
    """Why it failed, or what is wrong with it."""

    def to_json(self) -> dict[str, Any]:
        facts = {"path": str(self.path), "state": self.state, "algorithm": self.algorithm, "task": self.task}
        counts = {"updates": self.updates, "planned": self.planned, "age_seconds": round(self.age)}
        return {**facts, **counts, **self.numbers, **({"note": self.note} if self.note else {})}

    def cells(self) -> list[str]:
        """All but the path, as words."""
        told = ", ".join(f"{name} {value:.4g}" for name, value in self.numbers.items())
        done = f"{self.updates:,}/{self.planned:,}" if self.planned else f"{self.updates:,}"
        return [self.state, self.algorithm, self.task, done, told, age_words(self.age)]


def find_runs(folder: Path) -> list[Path]:
    """The run directories below a folder, itself among them, by name; stages of a run are part of it."""
    return sorted(_found(folder, DEEPEST, [MOST_FOLDERS]))


def _found(folder: Path, depth: int, left: list[int]) -> Iterator[Path]:
    left[0] -= 1
    if left[0] < 0:
        return
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        return
    if any(entry.name == "config.yaml" for entry in inside):
        yield folder
    elif depth:
        for entry in inside:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _found(folder / entry.name, depth - 1, left)


def describe_run_folder(path: Path, now: float | None = None) -> RunRow:
    """How a run stands; never an error."""
    run, clock = RunDir(path), time.time() if now is None else now
    age = max(clock - _last_written(run), 0.0)
    try:
        if run.config_file.lstat().st_size > MOST_CONFIG:
            raise UnderstudyError("config.yaml", "larger than any config")
        config = read_yaml(run.config_file)
    except (UnderstudyError, OSError, ValueError, RecursionError) as error:
        return RunRow(path, DAMAGED, "?", "?", 0, 0, {}, age, _cut(str(error).partition("\n")[0], 200))
    state, note = state_of(run)
    last = last_line(run.eval_file)
    done = max(_whole(line.get("updates")) for line in (last, last_line(run.metrics_file)))
    planned = _whole(config.get("updates"))
    return RunRow(path, state, _algorithm(config), _task(config), done, planned, _numbers(last), age, note)


def state_of(run: RunDir) -> tuple[str, str]:
    """How it stands, and if something went wrong, what."""
    if (state := run.state) != "stopped":
        return state, ""
    if is_locked(run.path):  # it is about to go on
        return "running", ""
    try:
        reason = StopNote.read(run.stop_file).reason
    except (UnderstudyError, OSError) as error:
        return "stopped", _cut(str(error), 200)
    return ("stopped", "") if reason in (CALLBACK, INTERRUPTED) else ("failed", _cut(reason, 200))


def last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a log that can be read; empty if there is none."""
    try:
        with open_regular(path, links=False) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - TAIL, 0))
            lines = file.read(TAIL).split(b"\n")[:-1]
    except OSError:
        return {}
    for text in reversed(lines):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            return line
    return {}


def _numbers(line: Mapping[str, Any]) -> dict[str, float]:
    names = {
        "return": "eval/return_mean",
        "score": "eval/score",
        "success": "eval/success_rate",
        "action error": "eval/action_error",
    }
    found = {name: as_float(line.get(key)) for name, key in names.items()}
    return {name: value for name, value in found.items() if value == value}  # noqa: PLR0124 (NaN is not)


def _algorithm(config: Mapping[str, Any]) -> str:
    algo = config.get("algo")
    return _cut(str(algo.get("name", "?") if isinstance(algo, dict) else algo), LONGEST)


def _task(config: Mapping[str, Any]) -> str:
    """The environment; of a run without one the name of its data."""
    env, data = config.get("env"), config.get("data")
    if isinstance(env, dict) and env.get("id"):
        return _cut(str(env["id"]), LONGEST)
    if isinstance(data, dict) and data.get("path"):
        return _cut(Path(str(data["path"])).name, LONGEST)
    return "?"


def _whole(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        value = int(value)  # YAML's words are read by the field they are for
    return value if type(value) is int and 0 <= value < 10**15 else 0


def _last_written(run: RunDir) -> float:
    times = [0.0]
    for file in (run.result_file, run.stop_file, run.timing_file, run.eval_file, run.metrics_file, run.config_file):
        try:
            times.append(file.lstat().st_mtime)
        except OSError:
            continue
    return max(times)


def _cut(text: str, length: int) -> str:
    """Printable, and no longer than it may be."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= length else f"{plain[:length]}…"


def age_words(seconds: float) -> str:
    """`3 min`, `5 h`, `2 d`."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


HEADS = ("run", "state", "algo", "task", "updates", "evaluated", "age")


def runs_table(rows: list[RunRow], folder: Path, width: int) -> Iterator[str]:
    """Lines of a table; where they do not fit, every run has a line for its name and one for the rest."""
    table = [list(HEADS), *([_shown(row.path, folder), *row.cells()] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADS))]
    together = sum(widths) + 2 * (len(widths) - 1) <= width
    for line, row in zip(table, [None, *rows], strict=True):
        first = "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        if together:
            yield first
        elif row is not None:
            yield line[0]
            yield from _wrapped(line[1:], width)
        if row is not None and row.note:
            yield from _wrapped([row.note], width)


def _wrapped(cells: list[str], width: int) -> Iterator[str]:
    """Cells with two spaces between them, indented, in as many lines as it takes; no cell is cut."""
    line = ""
    for cell in filter(None, cells):
        if line and len(line) + 2 + len(cell) > width:
            yield line
            line = ""
        line = f"{line}  {cell}" if line else f"  {cell}"
    if line:
        yield line


def _shown(path: Path, folder: Path) -> str:
    try:
        inside = path.relative_to(folder)
    except ValueError:
        return str(path)
    return str(path) if str(inside) == "." else str(inside)
