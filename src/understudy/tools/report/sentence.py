"""The first sentence of a report: who is better, as far as the seeds can tell."""

import re

from understudy.run.plots import HIGH, LOW, RETURN, as_float
from understudy.tools.experiments.verdict import verdict
from understudy.tools.report.curves import metric_label
from understudy.tools.report.markup import decimals, number
from understudy.tools.report.reading import Entry
from understudy.tools.report.study import Study

MINUS = re.compile(r"(?<=[\s\[])-(?=\d)")
"""Of a number, which all over the page has a longer one."""


def sentence(study: Study) -> str:
    """No more than the seeds bear out; of a single run what it reached."""
    if len(study.entries) == 1:
        return _of_one(study.entries[0], study.metric)
    told = MINUS.sub("−", _judged(study))
    return f"Preliminary: {told}" if study.preliminary and study.compared else told


def _judged(study: Study) -> str:
    return verdict(
        study.last,
        lowest_is_best=study.lowest_is_best,
        decisions=study.decisions,
        forecasts=study.forecasts,
        one_scale=study.comparable,
    )


def _of_one(entry: Entry, metric: str) -> str:
    run = entry.result
    who = f"{run.method} on {run.task}, seed {run.seed}, {entry.state}"
    updates, values = run.curve(metric)
    if not len(values):
        return f"{who}: not evaluated yet."
    last = run.evaluations[-1]
    low, high = (as_float(last.get(name)) for name in (LOW, HIGH))
    reached, best = float(values[-1]), run.best(metric)
    places = decimals((reached, best, low, high))
    value, lowest, highest, highlight = (number(one, places=places) for one in (reached, low, high, best))
    told = "" if metric != RETURN or not low < high else f" [{lowest}, {highest} over episodes]"
    best_told = f", at best {highlight}" if len(values) > 1 else ""
    return (
        f"{who}: {metric_label(metric).partition(' (')[0]} {value}{told} after {updates[-1]:,} "
        f"updates{best_told}. One seed says nothing of others."
    )
