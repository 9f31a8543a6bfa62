"""What a report knows of each run: its result, how it stands, where it came from, and some lines of its log.

Nothing in a folder can stop a report: a run that cannot be read is listed with the reason.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import UnderstudyError
from understudy.core.files import open_regular, read_json
from understudy.run.logs import LARGEST
from understudy.run.plots import as_float
from understudy.run.rundir import RunDir
from understudy.tools.experiments.results import Result, read_result, run_paths
from understudy.tools.report.markup import shortened
from understudy.tools.runs import last_line, state_of

MOST_LINES = 240
"""Of a log, read for diagnostics, at most."""
MOST_FACTS = 20
"""Of a dataset."""
QUOTED_FOLDERS = re.compile(r"(['\"])~?/(?!/)(?:[^'\"\n]*/)?")
FOLDERS = re.compile(r"(?<![\w.…:/~'\"])~?/(?!/)(?:[^\s'\"/]+/)+")
"""Of paths on a machine, all but the last part."""
UNREADABLE = (UnderstudyError, OSError, ValueError, OverflowError, RecursionError)


@final
@dataclass(frozen=True)
class Dataset:
    """What was learned from, as far as the run directory says it."""

    name: str
    fingerprint: str
    steps: float
    episodes: float
    return_mean: float
    told: Mapping[str, str]
    """Whatever else is known of it."""


@final
@dataclass(frozen=True)
class Entry:
    """One run."""

    result: Result
    state: str
    """finished, running, stopped, failed, killed."""
    note: str
    """Why it failed."""
    shown: str
    """Its folder, as the page calls it."""

    @property
    def path(self) -> Path:
        return self.result.path

    @cached_property
    def meta(self) -> Mapping[str, Any]:
        try:
            return read_json(self.path / "meta.json")
        except UNREADABLE:
            return {}

    @cached_property
    def clock(self) -> Mapping[str, Any]:
        return last_line(self.path / "timing.jsonl")

    @property
    def seconds(self) -> float:
        """How long it took so far."""
        return as_float(self.clock.get("seconds"))

    @cached_property
    def updates(self) -> int:
        """How far it is."""
        lines = (last_line(self.path / "metrics.jsonl"), *self.result.evaluations[-1:])
        return max((line["updates"] for line in lines if type(line.get("updates")) is int), default=0)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return sampled_lines(self.path / "metrics.jsonl")

    @property
    def episodes(self) -> list[float]:
        """Returns of the last evaluation."""
        last = self.result.evaluations[-1] if self.result.evaluations else {}
        returns = last.get("returns")
        return [as_float(value) for value in returns] if isinstance(returns, list) else []

    @property
    def dataset(self) -> Dataset | None:
        told = self.meta.get("dataset")
        if not isinstance(told, dict):
            return None
        known = ("name", "fingerprint", "steps", "episodes", "return_mean")
        steps, episodes, mean = (as_float(told.get(name)) for name in known[2:])
        rest = {
            shortened(str(key), 60): shortened(_fact(value), 120) for key, value in told.items() if key not in known
        }
        return Dataset(
            _text(told.get("name")),
            _text(told.get("fingerprint")),
            steps,
            episodes,
            mean,
            dict(list(rest.items())[:20]),
        )

    @property
    def versions(self) -> dict[str, str]:
        found = self.meta.get("versions")
        return {str(name): _text(value) for name, value in found.items()} if isinstance(found, dict) else {}

    @property
    def commit(self) -> str:
        """Of git where it was started; marked if files had been changed."""
        git = self.meta.get("git")
        if not isinstance(git, dict) or not git.get("commit"):
            return ""
        return _text(git["commit"])[:10] + (" with changes" if git.get("diff") or git.get("status") else "")

    @property
    def host(self) -> str:
        return _text(self.meta.get("host", ""))

    @property
    def platform(self) -> str:
        return _text(self.meta.get("platform", ""))


@final
@dataclass(frozen=True)
class Damaged:
    """A run that cannot be read."""

    shown: str
    reason: str


@final
@dataclass(frozen=True)
class Gathered:
    """All runs below some folders."""

    entries: list[Entry]
    damaged: list[Damaged] = field(default_factory=list)


def gather(folders: Iterable[Path | str]) -> Gathered:
    """Every run below these folders, each once; a folder without any is an error."""
    places = [Path(folder) for folder in folders]
    paths = run_paths(places)
    found = Gathered([])
    for path, shown in zip(paths, _names(paths, places), strict=True):
        try:
            state, note = state_of(RunDir(path))
            found.entries.append(Entry(read_result(path), state, placeless(note), shown))
        except UNREADABLE as error:
            found.damaged.append(Damaged(shown, shortened(placeless(str(error).partition("\n")[0]))))
    return found


def _names(paths: Sequence[Path], folders: Sequence[Path]) -> list[str]:
    """Runs by their way from the folder they have in common; if that says whose home is below it, from those that were
    named."""
    common = Path(os.path.commonpath([path.parent for path in paths]))
    if not is_above_homes(common):
        return [shortened(str(path.relative_to(common))) for path in paths]
    roots = list(dict.fromkeys(folder.resolve() for folder in folders))
    names = [root.name for root in roots]
    often = [names[: place + 1].count(name) for place, name in enumerate(names)]
    told = [name if count == 1 else f"{name} ({count})" for name, count in zip(names, often, strict=True)]
    whose = [next(place for place, root in enumerate(roots) if path.is_relative_to(root)) for path in paths]
    return [
        shortened(str(told[place] / path.relative_to(roots[place]))) for path, place in zip(paths, whose, strict=True)
    ]


def is_above_homes(folder: Path) -> bool:
    """Whether ways that begin there tell of a machine and of who works on it."""
    return folder == Path(folder.anchor) or folder in Path.home().parents


def placeless(text: str) -> str:
    """Without the folders of whoever computed it: of a path on a machine its last part."""
    return FOLDERS.sub("…/", QUOTED_FOLDERS.sub(r"\1…/", text))


def sampled_lines(path: Path, most: int = MOST_LINES) -> list[dict[str, Any]]:
    """Some lines of a log, the last among them; those that cannot be read are passed over.

    The first and every 2ⁿ-th after it, so that what is read of a long log is also read of a shorter one beside it."""
    try:
        with open_regular(path, links=False) as file:
            lines = file.read(LARGEST).split(b"\n")[:-1]
    except OSError:
        return []
    every = 1 << max(math.ceil(math.log2(max(len(lines), 1) / (most - 1))), 0)
    places = dict.fromkeys([*range(0, len(lines), every), len(lines) - 1]) if lines else ()
    parsed = (_parsed(lines[place]) for place in places)
    return [line for line in parsed if line]


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}


def numbers(lines: Iterable[Mapping[str, Any]], *names: str) -> tuple[NDArray[np.float64], ...]:
    """Columns of the lines in which all of these are numbers, in their order."""
    rows = [[as_float(line.get(name)) for name in names] for line in lines]
    table = np.array(rows, np.float64).reshape(len(rows), len(names))
    table = table[~np.isnan(table).any(1)]
    return tuple(table[table[:, 0].argsort(kind="stable")].T)


def _fact(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _text(value: object) -> str:
    return shortened(str(value), 200)
