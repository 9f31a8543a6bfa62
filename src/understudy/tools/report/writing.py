"""`us.report` and `understudy report`: runs in, a file out that can be sent to anybody; again whenever runs go on."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import final

from understudy.core.arguments import as_number, as_path, as_text, kind_of
from understudy.core.errors import ConfigError, RunError, did_you_mean
from understudy.core.files import write_bytes
from understudy.core.lock import is_locked
from understudy.tools.experiments.results import run_paths
from understudy.tools.report.page import INTERACTIVE, chart_library, page
from understudy.tools.report.plain import markdown, table
from understudy.tools.report.reading import gather
from understudy.tools.report.sentence import sentence
from understudy.tools.report.study import Study, study

FORMATS = ("html", "md", "csv")
EVERY = "all"
FILMS = 8.0
"""Megabytes of films in a page, if nobody says otherwise."""
POLL = 2.0
"""Seconds between two looks at logs."""
WATCHED = ("config.yaml", "metrics.jsonl", "eval.jsonl", "stopped.json", "result.json", "videos")
Place = PathLike[str] | str


@final
@dataclass(frozen=True)
class Report:
    """What was written, and the sentence it opens with."""

    paths: tuple[Path, ...]
    sentence: str
    notes: tuple[str, ...]
    """What a reader has to know before any number."""
    methods: tuple[str, ...]
    tasks: tuple[str, ...]


def report(
    runs: Sequence[Place] | Place,
    out: Place = "report.html",
    *,
    metric: str = "",
    format: str = "",
    videos: float = FILMS,
    watched: bool = False,
) -> Report:
    """Write what came of runs as one HTML page that needs nothing but itself, as Markdown, as CSV, or all of them.

    `runs`: run directories, or folders with runs below them, also of runs that train. `metric`: return, score, success,
    length or any number of an evaluation, instead of what the runs are judged by. `format`: html, md, csv or all; else
    `out` says it by its ending. `videos`: megabytes of films in the page.
    """
    folders = _folders(runs)
    wanted = _files(as_path(out, "out"), as_text(format, "format"))
    megabytes = as_number(videos, "videos")
    if not 0 <= megabytes <= 1024:
        raise ConfigError("videos", "wrong number of megabytes", got=videos, expected="0 to 1024")
    found = study(gather(folders), as_text(metric, "metric"))
    told, date = sentence(found), time.strftime("%Y-%m-%d %H:%M")
    for kind, path in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, _text(kind, found, told, date, path, megabytes, watched).encode())
    return Report(tuple(wanted.values()), told, tuple(found.notes), tuple(found.methods), tuple(found.tasks))


def _text(kind: str, found: Study, told: str, date: str, path: Path, megabytes: float, watched: bool) -> str:
    if kind == "md":
        return markdown(found, told, date)
    if kind == "csv":
        return table(found)
    return page(found, told, beside=path.parent, date=date, megabytes=megabytes, watched=watched)


def _folders(runs: Sequence[Place] | Place) -> list[Path]:
    places = [runs] if isinstance(runs, (str, PathLike)) else runs
    if not isinstance(places, Sequence):
        raise ConfigError("report", "not a run, nor several", got=kind_of(runs))
    if not places:
        raise ConfigError("report", "no run to report", expected="at least one")
    return [as_path(place, "report") for place in places]


def _files(out: Path, kind: str) -> dict[str, Path]:
    """By format, what is written."""
    kinds = FORMATS if kind == EVERY else (kind or out.suffix.removeprefix(".") or FORMATS[0],)
    for one in kinds:
        if one not in FORMATS:
            where = "format" if kind else "out"
            raise ConfigError(where, "no such format", got=one, do=did_you_mean(one, [*FORMATS, EVERY]))
    if out.suffix and out.suffix.removeprefix(".") not in FORMATS:
        raise ConfigError("out", "no such format", got=out.name, do=did_you_mean(out.suffix[1:], FORMATS))
    return {one: out.with_suffix(f".{one}") for one in kinds}


def watch(folders: Sequence[Path], poll: float = POLL) -> Iterator[None]:
    """Once now, and then whenever a run began, went on or ended, whatever ended it."""
    before: object = None
    while True:
        now = _stamps(folders)
        if now != before:
            yield
            before = now
        time.sleep(poll)


def _stamps(folders: Sequence[Path]) -> list[tuple[str, int, int]]:
    """When the files of all runs were last written, and how long they are; and which are at work."""
    try:
        runs = run_paths(folders)
    except RunError:  # they are being replaced
        return []
    found = []
    for run in runs:
        if not (run / "result.json").exists():
            found.append((str(run), int(is_locked(run)), 0))  # who is killed writes nothing
        for name in WATCHED:
            try:
                facts = (run / name).lstat()
            except OSError:
                continue
            found.append((str(run / name), facts.st_mtime_ns, facts.st_size))
    return found


def how_to_touch() -> str:
    """What to install for charts that answer to the pointer; nothing if it is there."""
    return "" if chart_library() else f"Charts are still pictures; for those that answer to the pointer: {INTERACTIVE}"
