"""What a report says first: how methods stand on each task, their curves, and how sure one may be."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.core.wording import counted
from understudy.tools.experiments.results import SCORE
from understudy.tools.experiments.statistics import (
    Estimate,
    interval,
    iqm,
    mean,
    median,
    optimality_gap,
    paired_interval,
    probability_of_improvement,
    selection_bias,
)
from understudy.tools.report import explanations
from understudy.tools.report.curves import caption, learning_curves, metric_label, profiles
from understudy.tools.report.diagnostics import diagnostics
from understudy.tools.report.drawing import COLORS, LARGE, SMALL, Row, colored, draw, draw_intervals
from understudy.tools.report.markup import Markup, element, joined, number
from understudy.tools.report.panels import Level, Panel
from understudy.tools.report.study import Study

MOST_COMPARED = 12
"""Methods of a table of pairs."""
OPEN = 1
"""Tasks whose diagnostics are unfolded."""
FULL_SCORE = 100.0

Charts = list[Panel]


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def section(title: str, *content: object, name: str = "", about: object = "") -> Markup:
    told = element("p", about, class_="about") if about else ""
    return element("section", element("h2", title), told, *content, id=name)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], *, numbered: int = 1, kind: str = "") -> Markup:
    """Columns from the `numbered`-th on hold numbers; a click on a head sorts."""
    heads = [
        element(
            "th", element("button", cell, type="button"), scope="col", class_="number" if place >= numbered else None
        )
        for place, cell in enumerate(head)
    ]
    body = [element("tr", *(_cell(cell, place, numbered) for place, cell in enumerate(row))) for row in rows]
    whole = element("table", element("thead", element("tr", *heads)), element("tbody", *body), class_=kind or None)
    return element("div", whole, class_="scroll", tabindex="0")


def _cell(cell: object, place: int, numbered: int) -> Markup:
    if place == 0:
        return element("th", cell, scope="row")
    value = cell if isinstance(cell, float) else None
    told = number(cell) if isinstance(cell, float) else f"{cell:,}" if type(cell) is int else cell
    sort = value if value is not None and math.isfinite(value) else cell if type(cell) is int else None
    return element("td", told, class_="number" if place >= numbered else None, data_sort=sort)


def method_name(study: Study, method: str) -> Markup:
    """With the colour it has in charts."""
    return element("span", swatch(study.color(method)), method, class_="method")


def swatch(color: int) -> Markup:
    return element("i", **colored(color, f"swatch d{color // COLORS % 4}"))


def legend(study: Study, *extra: Markup) -> Markup:
    """The methods' colours; with a script, what hides and shows them."""
    chips = [
        element("button", swatch(study.color(name)), name, type="button", class_="chip", data_method=study.color(name),
                aria_pressed="true")
        for name in study.methods
    ]  # fmt: skip
    return element("div", *chips, *extra, class_="legend")


def switches(*named: tuple[str, str]) -> Markup:
    """Buttons that only a script can press, so they show only where one runs."""
    return joined(
        *(element("button", told, type="button", class_="chip switch", data_switch=name) for name, told in named)
    )


def chart(panel: Panel, charts: Charts, size: tuple[float, float] = SMALL, *, away: bool = False) -> Markup:
    """A drawing, and the place where a script draws the same to be touched; `away` until it is asked for."""
    charts.append(panel)
    kind = "panel" + (" large" if size == LARGE else "") + (" away" if away else "")
    return element(
        "figure",
        element("figcaption", element("b", panel.title), element("span", panel.note) if panel.note else ""),
        element("div", draw(panel, size), class_="still"),
        element("div", class_="live", data_chart=len(charts) - 1, data_height=300 if size == LARGE else 190),
        class_=kind,
        data_axis=panel.axis or None,
    )


def summary(study: Study) -> Markup:
    """Methods × tasks: the last value with its interval; beside it the best, with its caveat."""
    head = ["method", *study.tasks]
    rows = [
        [method_name(study, method), *(_score(study, method, task) for task in study.tasks)] for method in study.methods
    ]
    rows += [[told, *cells] for told, cells in _published_rows(study)]
    better = "lower is better" if study.lowest_is_best else "higher is better"
    about = (
        f"{capital(metric_label(study.metric))}, {better}: the last evaluation of each seed, as mean over seeds with "
        f"its 95 % bootstrap interval. Bold is the {'lowest' if study.lowest_is_best else 'highest'} mean of its task; "
        "whether that decides anything is for the sentence above."
    )
    parts = [table(head, rows, kind="summary"), _interval_charts(study), _best(study), _aggregates(study)]
    return section("Summary", *parts, name="summary", about=about)


def _score(study: Study, method: str, task: str) -> Markup:
    found = study.estimates.get((method, task))
    if found is None:
        runs = study.of(method, task)
        return element("span", "no number yet" if runs else "not run", class_="quiet")
    seeds = counted(len(study.last[method][task]), "seed")
    among = [one.value for (_, where), one in study.estimates.items() if where == task]
    best = len(among) > 1 and found.value == (min(among) if study.lowest_is_best else max(among))
    value = element("b" if best else "span", number(found.value), class_="value best" if best else "value")
    limits = (
        "one seed: no interval" if math.isnan(found.low) else f"{number(found.low)} to {number(found.high)}, {seeds}"
    )
    return element("span", value, element("small", limits), class_="score", data_sort=found.value)


def _published_rows(study: Study) -> Iterator[tuple[Markup, list[Markup]]]:
    presets = {one.config: one for found in study.published.values() for one in found}
    for config, preset in presets.items():
        told = element("span", config, element("small", f"published: {preset.source}"), class_="quiet score")
        yield told, [_published(study, config, task) for task in study.tasks]


def _published(study: Study, config: str, task: str) -> Markup:
    found = next((one for one in study.published.get(task, ()) if one.config == config), None)
    if found is None:
        return element("span", "–", class_="quiet")
    spread = element("small", f"± {found.deviation:g} over its seeds")
    return element(
        "span", element("span", f"{found.mean:g}", class_="value"), spread, class_="score quiet", data_sort=found.mean
    )


def _interval_charts(study: Study) -> Markup:
    """Of few tasks a chart each; of many, tables say it better."""
    if len(study.tasks) > 4 or len(study.entries) < 2:
        return Markup("")
    return element("div", *(_intervals(study, task) for task in study.tasks), class_="grid wide")


def _intervals(study: Study, task: str) -> Markup:
    rows = [
        Row(method, study.color(method), found.value, found.low, found.high, tuple(study.last[method][task].tolist()))
        for method in study.methods
        if (found := study.estimates.get((method, task))) is not None
    ]
    if not rows:
        return Markup("")
    levels = [Level(one.config, one.mean) for one in study.published.get(task, ())]
    told = element(
        "figcaption", element("b", task), element("span", "rings are seeds, bars 95 % intervals of their mean")
    )
    return element("figure", told, draw_intervals(rows, metric_label(study.metric), levels), class_="panel")


def _best(study: Study) -> Markup:
    """The best of all evaluations, folded away: it is chosen by what it is judged by."""
    rows = [
        [method_name(study, method), *(_mean(study.best[method][task]) for task in study.tasks)]
        for method in study.methods
    ]  # fmt: skip
    counts = [len(entry.result.evaluations) for entry in study.entries]
    evaluations = int(np.median(counts)) if counts else 0
    bias = (
        f" The best of {evaluations} equally good ones looks {selection_bias(evaluations):.2g} deviations better."
        if evaluations > 1
        else ""
    )
    about = element(
        "p",
        explanations.BEST,
        bias,
        class_="about",
    )
    return element(
        "details",
        element("summary", explanations.BEST_TITLE),
        about,
        table(["method", *study.tasks], rows),
    )


def _mean(seeds: NDArray[np.float64]) -> float:
    return float(np.mean(seeds)) if len(seeds) else math.nan


def _aggregates(study: Study) -> Markup:
    """All tasks as one number, where they are on one scale."""
    if len(study.tasks) < 2 or len(study.methods) < 2:
        return Markup("")
    if not study.comparable:
        return element(
            "p",
            explanations.DIFFERENT_SCALES,
            class_="about",
        )
    if not study.shared_tasks:
        return element("p", explanations.NOTHING_SHARED, class_="about")
    kinds = {"IQM": iqm, "mean": mean, "median": median}
    if study.metric == SCORE:
        kinds |= {"optimality gap": partial(optimality_gap, target=FULL_SCORE)}
    rows = [
        [
            method_name(study, method),
            *(_estimate(interval(kind, study.shared(method)), study) for kind in kinds.values()),
        ]
        for method in study.methods
    ]
    told = f"Over {counted(len(study.shared_tasks), 'task')}" + (
        " (those that every method has)" if len(study.shared_tasks) < len(study.tasks) else ""
    )
    about = element(
        "p",
        f"{told}, each weighing the same; intervals are stratified bootstraps over seeds within tasks.",
        class_="about",
    )
    return joined(element("h3", "Over all tasks"), about, table(["method", *kinds], rows))


def _estimate(found: Estimate, study: Study) -> Markup:
    sign = -1.0 if study.lowest_is_best else 1.0
    low, high = sorted((sign * found.low, sign * found.high))
    limits = "" if math.isnan(low) else f"{number(low)} to {number(high)}"
    return element(
        "span",
        element("span", number(sign * found.value), class_="value"),
        element("small", limits),
        class_="score",
        data_sort=sign * found.value,
    )


def curves(study: Study, charts: Charts) -> Markup:
    """Learning curves, a chart per task."""
    panels = learning_curves(study)
    if not panels:
        return section(
            "Learning curves",
            element("p", "No run has been evaluated twice yet: there is no curve to draw.", class_="about"),
            name="curves",
        )
    axes = list(dict.fromkeys(panel.axis for panel in panels))
    size = LARGE if len(study.tasks) == 1 else SMALL
    seeded = any(line.seeds for panel in panels for line in panel.lines)
    choices = [("axis", "over updates / environment steps")] if len(axes) > 1 else []
    choices += [("seeds", "every seed")] if seeded else []
    figures = element(
        "div", *(chart(panel, charts, size, away=panel.axis != axes[0]) for panel in panels), class_="grid"
    )
    about = caption(study) + (f" {explanations.LEVELS}" if any(panel.levels for panel in panels) else "")
    return section("Learning curves", legend(study, switches(*choices)), figures, name="curves", about=about)


def comparisons(study: Study, charts: Charts) -> Markup:
    """Performance profiles, and how probably one method beats another."""
    parts: list[Markup] = []
    for panel in profiles(study):
        about = explanations.PROFILES
        parts += [
            element("h3", "Performance profiles"),
            element("p", about, class_="about"),
            legend(study),
            chart(panel, charts, LARGE),
        ]
    parts += _improvement(study)
    return section("How sure", *parts, name="sure") if parts else Markup("")


def _improvement(study: Study) -> Iterator[Markup]:
    methods = study.methods[:MOST_COMPARED]
    if len(methods) < 2 or not study.shared_tasks:
        return
    scores = {method: study.shared(method) for method in methods}
    rows = [[method_name(study, a), *(_probability(scores, a, b) for b in methods)] for a in methods]
    more = (
        f" Of {len(study.methods)} methods the first {len(methods)} are compared."
        if len(study.methods) > len(methods)
        else ""
    )
    yield element("h3", "Probability of improvement")
    yield element(
        "p",
        explanations.IMPROVEMENT + more,
        class_="about",
    )
    yield table(["row beats column", *methods], rows, kind="matrix")


def _probability(scores: dict[str, list[np.ndarray]], a: str, b: str) -> Markup:
    if a == b:
        return element("span", "–", class_="quiet")
    found = paired_interval(probability_of_improvement, scores[a], scores[b])
    limits = "" if math.isnan(found.low) else f"{found.low:.0%} to {found.high:.0%}"
    tone = f"--p:{min(max(found.value, 0.0), 1.0):.2f}"
    value = element("span", f"{found.value:.0%}", class_="value")
    return element("span", value, element("small", limits), class_="score heat", style=tone, data_sort=found.value)


def diagnosed(study: Study, charts: Charts) -> Markup:
    """What algorithms log of themselves, task by task."""
    folded: list[Markup] = []
    for task, panels in diagnostics(study).items():
        figures = element("div", *(chart(panel, charts) for panel in panels), class_="grid small")
        told = element("summary", task, element("small", counted(len(panels), "number")))
        folded.append(element("details", told, figures, open=len(folded) < OPEN))
    if not folded:
        return Markup("")
    return section("Diagnostics", legend(study), *folded, name="diagnostics", about=explanations.DIAGNOSTICS)
