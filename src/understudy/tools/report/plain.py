"""The same as text: Markdown for people, CSV with a line per run for programs."""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from understudy.tools.report.curves import metric_label
from understudy.tools.report.markup import number, shortened
from understudy.tools.report.origins import speed
from understudy.tools.report.page import title
from understudy.tools.report.reading import Entry
from understudy.tools.report.study import Study

COLUMNS = (
    "method", "task", "seed", "state", "updates", "planned", "metric", "last", "best", "best_updates", "evaluations",
    "experiment", "seconds", "updates_per_second", "commit", "dataset", "path", "note",
)  # fmt: skip
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that spreadsheets take for a formula."""


def markdown(study: Study, sentence: str, date: str) -> str:
    """The sentence, the table of methods and tasks, and every run."""
    return "\n".join(_lines(study, sentence, date))


def _lines(study: Study, sentence: str, date: str) -> Iterator[str]:
    yield f"# {_plain(title(study))}\n"
    yield f"{_plain(sentence)}\n"
    yield from (f"- {_plain(note)}" for note in study.notes)
    better = "lower is better" if study.lowest_is_best else "higher is better"
    yield f"\n## {_plain(metric_label(study.metric))}, {better}: last value, mean over seeds [95 % interval] (seeds)\n"
    cells = [[method, *(_cell(study, method, task) for task in study.tasks)] for method in study.methods]
    yield from _table(["method", *study.tasks], [*cells, *_published(study)])
    yield "\n## Best of all evaluations\n\nChosen by what it is judged by, so it flatters; compare by the last value.\n"
    best = [[method, *(_mean(study, method, task) for task in study.tasks)] for method in study.methods]
    yield from _table(["method", *study.tasks], best)
    yield "\n## Runs\n"
    runs = [
        [one.result.method, one.result.task, str(one.result.seed), one.state, *_values(study, one), one.shown]
        for one in study.entries
    ]
    runs += [["", "", "", "damaged", "", "", f"{one.shown}: {one.reason}"] for one in study.damaged]
    yield from _table(["method", "task", "seed", "state", "last", "best", "run"], runs)
    yield f"\n*Understudy, {date}*\n"


def _cell(study: Study, method: str, task: str) -> str:
    found = study.estimates.get((method, task))
    if found is None:
        return "–"
    value, low, high = (number(one, places=study.places(task)) for one in (found.value, found.low, found.high))
    limits = "" if math.isnan(found.low) else f" [{low}, {high}]"
    return f"{value}{limits} ({len(study.last[method][task])})"


def _published(study: Study) -> Iterator[list[str]]:
    for config in dict.fromkeys(one.config for found in study.published.values() for one in found):
        known = {task: one for task, found in study.published.items() for one in found if one.config == config}
        told = [
            " ± ".join(number(one, places=study.places(task)) for one in (known[task].mean, known[task].deviation))
            if task in known
            else "–"
            for task in study.tasks
        ]
        when = next(iter(known.values())).when
        yield [f"{config}, {when}", *told]


def _mean(study: Study, method: str, task: str) -> str:
    seeds = study.best[method][task]
    return number(float(np.mean(seeds)), places=study.places(task)) if len(seeds) else "–"


def _values(study: Study, entry: Entry) -> list[str]:
    known = (entry.result.last(study.metric), entry.result.best(study.metric))
    return [number(value, places=study.places(entry.result.task)) for value in known]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row([_plain(cell) for cell in head])
    yield _row(["---"] * len(head))
    yield from (_row([_plain(cell) for cell in row]) for row in rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Without what Markdown or HTML would take for more than text."""
    return re.sub(r"([\\`|<>\[\]*_#&])", r"\\\1", shortened(text).strip())


def table(study: Study) -> str:
    """A line per run, for programs; what cannot be read is there, too."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([*map(_harmless, _facts(study, entry))] for entry in study.entries)
    damaged = ({"state": "damaged", "path": one.shown, "note": one.reason} for one in study.damaged)
    writer.writerows([_harmless(facts.get(name, "")) for name in COLUMNS] for facts in damaged)
    return text.getvalue()


def _facts(study: Study, entry: Entry) -> list[object]:
    run = entry.result
    updates, values = run.curve(study.metric)
    last, best = run.last(study.metric), run.best(study.metric)
    at = int(updates[np.flatnonzero(values == best)[0]]) if not math.isnan(best) else ""
    dataset = entry.dataset
    return [
        run.method, run.task, run.seed, entry.state, entry.updates, run.config.updates, study.metric, _number(last),
        _number(best), at, len(run.evaluations), run.experiment[:12], _number(entry.seconds), _number(speed(entry)),
        entry.commit, dataset.fingerprint[:12] if dataset is not None else "", entry.shown, entry.note,
    ]  # fmt: skip


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else ""


def _harmless(value: object) -> object:
    """Text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
