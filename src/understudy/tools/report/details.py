"""Task by task: every run with its seed, its state, its last episodes and where it lies."""

import math
import os
from pathlib import Path
from urllib.parse import quote

import numpy as np

from understudy.core.wording import counted
from understudy.run.plots import RETURN, as_float
from understudy.tools.report import explanations
from understudy.tools.report.drawing import strip
from understudy.tools.report.markup import Markup, decimals, element, joined, number
from understudy.tools.report.reading import Entry, is_above_homes
from understudy.tools.report.sections import measured, method_name, section, table
from understudy.tools.report.study import Study


def details(study: Study, beside: Path) -> Markup:
    """A table per task; `beside` is the folder in which the page will lie, from which links lead to runs."""
    parts = []
    for task in study.tasks:
        entries = [entry for method in study.methods for entry in study.of(method, task)]
        told = element("summary", task, element("small", counted(len(entries), "run")))
        parts.append(element("details", told, _table(study, entries, beside), open=len(study.tasks) == 1))
    return section("Task by task", *parts, name="tasks", about=explanations.TASKS)


def _table(study: Study, entries: list[Entry], beside: Path) -> Markup:
    played = [value for entry in entries for value in entry.episodes if math.isfinite(value)]
    low, high = (min(played), max(played)) if played else (0.0, 1.0)
    fine = decimals((low, high))
    head = ["method", "seed", "state", "updates", "last", "best", "at", "episodes of the last evaluation", "run"]
    places = study.places(entries[0].result.task)
    rows = [_row(study, entry, low, high, beside, places) for entry in entries]
    scale = (
        element(
            "p",
            f"Episodes' returns are drawn from {number(low, places=fine)} to {number(high, places=fine)}.",
            class_="about",
        )
        if played
        else ""
    )
    label = f"Runs of {entries[0].result.task}"
    return joined(table(label, head, rows, words=(2, 7, 8), kind="runs"), scale)


def _row(study: Study, entry: Entry, low: float, high: float, beside: Path, places: int | None) -> list[object]:
    result = entry.result
    updates, values = result.curve(study.metric)
    best = result.best(study.metric)
    at = int(updates[np.flatnonzero(values == best)[0]]) if not math.isnan(best) else "–"
    return [
        method_name(study, result.method),
        result.seed,
        state(entry),
        element(
            "span", f"{entry.updates:,}", element("small", f"of {result.config.updates:,}"), data_sort=entry.updates
        ),
        measured(result.last(study.metric), places),
        measured(best, places),
        at,
        _episodes(entry, low, high),
        linked(entry.shown, entry.path, beside),
    ]


def _episodes(entry: Entry, low: float, high: float) -> Markup:
    if not entry.episodes:
        return element("span", "–", class_="quiet")
    known = entry.result.evaluations[-1].get(RETURN)
    told = f"{counted(len(entry.episodes), 'episode')}, mean {number(as_float(known))}"
    return element("span", strip(entry.episodes[:200], low, high), element("small", told))


def state(entry: Entry) -> Markup:
    return element(
        "span", entry.state, element("small", entry.note) if entry.note else "", class_=f"state {entry.state}"
    )


def linked(told: str, path: Path, beside: Path) -> Markup:
    """From the page to a run, relative, so that both may move together; where the way would lead past somebody's home,
    only its name."""
    here = beside.resolve()
    if is_above_homes(Path(os.path.commonpath([here, path]))):
        return element("span", told)
    return element("a", told, href=f"./{quote(Path(os.path.relpath(path, here)).as_posix())}/")
