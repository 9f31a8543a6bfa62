"""What a report says first: how methods stand on each task, their curves, and how sure one may be."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.core.wording import counted
from understudy.tools.experiments.results import SCORE
from understudy.tools.experiments.sequential import BETTER, WORSE
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
from understudy.tools.report.curves import caption, learning_curves, levels, metric_label, profiles
from understudy.tools.report.diagnostics import diagnostics
from understudy.tools.report.drawing import COLORS, LARGE, SMALL, Row, colored, draw, draw_intervals
from understudy.tools.report.markup import Markup, decimals, element, joined, number, told_apart
from understudy.tools.report.panels import CROWD, Level, Panel, drawn
from understudy.tools.report.study import Study

LONG_NAME = 26
"""Letters of a method's name that stand in one line."""
OPEN = 1
"""Tasks whose diagnostics are unfolded."""
FULL_SCORE = 100.0

Charts = list[Panel]


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def section(title: str, *content: object, name: str = "", about: object = "") -> Markup:
    told = element("p", about, class_="about") if about else ""
    return element("section", element("h2", title), told, *content, id=name)


def table(
    label: str, head: Sequence[object], rows: Iterable[Sequence[object]], *, words: Collection[int] = (), kind: str = ""
) -> Markup:
    """The first column names its row; of the others, all but those at `words` hold numbers. A click on a head sorts."""
    numbers = [place not in (0, *words) for place in range(len(head))]
    heads = [
        element("th", element("button", cell, type="button"), scope="col", class_="number" if numbered else None)
        for cell, numbered in zip(head, numbers, strict=True)
    ]
    body = [element("tr", *(_cell(cell, place, numbers[place]) for place, cell in enumerate(row))) for row in rows]
    whole = element("table", element("thead", element("tr", *heads)), element("tbody", *body), class_=kind or None)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def measured(value: float, places: int | None) -> Markup:
    """A number of a column, by which it is sorted."""
    return element("span", number(value, places=places), data_sort=value if math.isfinite(value) else None)


def _cell(cell: object, place: int, numbered: bool) -> Markup:
    if place == 0:
        return element("th", cell, scope="row")
    value = cell if isinstance(cell, float) else None
    told = number(cell) if isinstance(cell, float) else f"{cell:,}" if type(cell) is int else cell
    sort = value if value is not None and math.isfinite(value) else cell if type(cell) is int else None
    return element("td", told, class_="number" if numbered else None, data_sort=sort)


def method_name(study: Study, method: str) -> Markup:
    """With the colour it has in charts."""
    kind = "method long" if len(method) > LONG_NAME else "method"
    return element("span", swatch(study.color(method)), method, class_=kind)


def short_names(methods: Sequence[str]) -> list[Markup]:
    """For columns' heads."""
    told = told_apart(methods, LONG_NAME)
    return [
        element("span", name, title=method if name != method else None)
        for name, method in zip(told, methods, strict=True)
    ]


def swatch(color: int) -> Markup:
    return element("i", **colored(color, f"swatch d{color // COLORS % 4}"))


def legend(study: Study, *extra: Markup, methods: Sequence[str] = ()) -> Markup:
    """The methods' colours; with a script, what hides and shows them."""
    chips = [
        element("button", swatch(study.color(name)), name, type="button", class_="chip", data_method=study.color(name),
                aria_pressed="true")
        for name in methods or study.methods
    ]  # fmt: skip
    many = switches(("all", "all / none")) if len(chips) > CROWD else ""
    return element("div", *chips, many, *extra, class_="legend")


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
        _caption(panel.title, panel.note or (panel.y_label if panel.y_label != panel.title else ""), panel.levels),
        element("div", draw(panel, size), class_="still"),
        element("div", class_="live", data_chart=len(charts) - 1, data_height=300 if size == LARGE else 190),
        class_=kind,
        data_axis=panel.axis or None,
    )


def _caption(title: str, told: str, levels: Sequence[Level]) -> Markup:
    """What a chart shows, what its y axis counts, and what its dashed lines are."""
    known = [level for level in levels if drawn(level.value)]
    places = decimals(level.value for level in known)
    names = "; ".join(f"{level.name} {number(level.value, places=places)}" for level in known)
    dashed = f"dashed: {names}" if known else ""
    words = (element("span", line) for line in (told, dashed) if line)
    return element("figcaption", element("b", title), *words)


def summary(study: Study, told: str) -> Markup:
    """Methods × tasks: the last value with its interval; beside it the best, with its caveat. `told`: what the page
    opens with."""
    head = ["method", *study.tasks]
    rows = [
        [method_name(study, method), *(_score(study, method, task) for task in study.tasks)] for method in study.methods
    ]
    rows += [[told, *cells] for told, cells in _published_rows(study)]
    better = "lower is better" if study.lowest_is_best else "higher is better"
    bold = (
        f" Bold is the {'lowest' if study.lowest_is_best else 'highest'} mean of its task; whether that decides "
        "anything is for the sentence above."
    )
    seeds = any(not math.isnan(one.low) for one in study.estimates.values())
    means = ", as mean over seeds with its 95 % bootstrap interval." if seeds else "."
    about = f"{capital(metric_label(study.metric))}, {better}: the last evaluation of each seed{means}"
    about += bold if any(map(study.leads, study.estimates)) else ""
    about += explanations.IQM if "IQM" in told else ""
    first = [table("Summary", head, rows, kind="summary"), _interval_charts(study)]
    together = element("div", *first, class_="pair") if len(study.tasks) == 1 and first[1] else joined(*first)
    return section("Summary", together, _best(study), _aggregates(study), name="summary", about=about)


def _score(study: Study, method: str, task: str) -> Markup:
    found = study.estimates.get((method, task))
    if found is None:
        states = {entry.result.state for entry in study.of(method, task)}
        told = "not run" if not states else "no number" if states == {"finished"} else "no number yet"
        return element("span", told, class_="quiet")
    seeds, places = counted(len(study.last[method][task]), "seed"), study.places(task)
    best = study.leads((method, task))
    value = element(
        "b" if best else "span", number(found.value, places=places), class_="value best" if best else "value"
    )
    limits = "one seed: no interval" if math.isnan(found.low) else f"{_limits(found, places)}, {seeds}"
    return element("span", value, element("small", limits), class_="score", data_sort=found.value)


def _limits(found: Estimate, places: int | None) -> str:
    return f"{number(found.low, places=places)} to {number(found.high, places=places)}"


def _published_rows(study: Study) -> Iterator[tuple[Markup, list[Markup]]]:
    presets = {one.config: one for found in study.published.values() for one in found}
    for config, preset in presets.items():
        told = element("span", config, element("small", f"{preset.when}: {preset.source}"), class_="quiet score")
        yield told, [_published(study, config, task) for task in study.tasks]


def _published(study: Study, config: str, task: str) -> Markup:
    found = next((one for one in study.published.get(task, ()) if one.config == config), None)
    if found is None:
        return element("span", "–", class_="quiet")
    mean, deviation = (number(value, places=study.places(task)) for value in (found.mean, found.deviation))
    spread = element("small", f"± {deviation} over its seeds")
    return element("span", element("span", mean, class_="value"), spread, class_="score quiet", data_sort=found.mean)


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
    entries = [entry for entry in study.entries if entry.result.task == task]
    shown = list(levels(study, task, entries))
    seeded = any(math.isfinite(row.low) for row in rows)
    told = _caption(task, explanations.RINGS if seeded else "one seed each", shown)
    return element("figure", told, draw_intervals(rows, metric_label(study.metric), shown), class_="panel")


def _best(study: Study) -> Markup:
    """The best of all evaluations, folded away: it is chosen by what it is judged by."""
    places = {task: study.places(task) for task in study.tasks}
    rows = [
        [method_name(study, method), *(measured(_mean(study.best[method][task]), places[task]) for task in study.tasks)]
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
        table(explanations.BEST_TITLE, ["method", *study.tasks], rows),
    )


def _mean(seeds: NDArray[np.float64]) -> float:
    return float(np.mean(seeds)) if len(seeds) else math.nan


def _aggregates(study: Study) -> Markup:
    """All tasks as one number, where they are on one scale."""
    if len(study.tasks) < 2 or len(study.compared) < 2:
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
        kinds |= {"optimality gap (lower is better)": partial(optimality_gap, target=FULL_SCORE)}
    known = {method: [interval(kind, study.shared(method)) for kind in kinds.values()] for method in study.compared}
    places = decimals(value for found in known.values() for one in found for value in (one.value, one.low, one.high))
    rows = [
        [method_name(study, method), *(_estimate(one, study, places) for one in found)]
        for method, found in known.items()
    ]
    told = f"Over {counted(len(study.shared_tasks), 'task')}" + (
        " (those that every method has)" if len(study.shared_tasks) < len(study.tasks) else ""
    )
    intervals = any(not math.isnan(one.low) for found in known.values() for one in found)
    about = f"{told}, each weighing the same" + (
        "; intervals are stratified bootstraps over seeds within tasks." if intervals else "."
    )
    over = table("Over all tasks", ["method", *kinds], rows)
    return joined(element("h3", "Over all tasks"), element("p", about, class_="about"), over)


def _estimate(found: Estimate, study: Study, places: int | None) -> Markup:
    sign = -1.0 if study.lowest_is_best else 1.0
    low, high = sorted((sign * found.low, sign * found.high))
    limits = "" if math.isnan(low) else _limits(Estimate(found.value, low, high), places)
    value = element("span", number(sign * found.value, places=places), class_="value")
    return element("span", value, element("small", limits), class_="score", data_sort=sign * found.value)


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
    return section("Learning curves", legend(study, switches(*choices)), figures, name="curves", about=caption(study))


def comparisons(study: Study, charts: Charts) -> Markup:
    """Performance profiles, and how probably one method beats another."""
    parts: list[Markup] = []
    for panel in profiles(study):
        banded = any(line.low is not None for line in panel.lines)
        about = explanations.PROFILES + (explanations.PROFILE_BANDS if banded else "")
        parts += [
            element("h3", "Performance profiles"),
            element("p", about, class_="about"),
            legend(study, methods=[line.name for line in panel.lines]),
            chart(panel, charts, LARGE),
        ]
    parts += _improvement(study)
    return section("How sure", *parts, name="sure") if parts else Markup("")


def _improvement(study: Study) -> Iterator[Markup]:
    methods = study.best_methods
    if len(methods) < 2 or not study.seeded:
        return
    scores = {method: study.shared(method) for method in methods}
    rows = [[method_name(study, a), *(_probability(study, scores, a, b) for b in methods)] for a in methods]
    more = (
        f" Of {len(study.compared)} methods the {len(methods)} with the best means are compared."
        if len(study.compared) > len(methods)
        else ""
    )
    told = explanations.IMPROVEMENT + (explanations.DECIDED if study.decisions is not None else "") + more
    yield element("h3", "Probability of improvement")
    yield element("p", told, class_="about")
    yield table("Probability of improvement", ["row beats column", *short_names(methods)], rows, kind="matrix")


def _probability(study: Study, scores: dict[str, list[np.ndarray]], a: str, b: str) -> Markup:
    if a == b:
        return element("span", "–", class_="quiet")
    found = paired_interval(probability_of_improvement, scores[a], scores[b])
    decided = study.decisions is not None and study.decisions.of(a, b).verdict in (BETTER, WORSE)
    tone = f"--p:{min(max(found.value, 0.0), 1.0):.2f}"
    value = element("b" if decided else "span", f"{100 * found.value:.0f} %", class_="value")
    limits = element("small", _chances(found))
    return element("span", value, limits, class_="score heat", style=tone, data_sort=found.value)


def _chances(found: Estimate) -> str:
    """An interval without width is none: where one wins every pair, so it does in every draw."""
    if math.isnan(found.low):
        return ""
    if found.low == found.high:
        return {1.0: "every pair", 0.0: "no pair"}.get(found.value, "")
    return f"{100 * found.low:.0f} to {100 * found.high:.0f} %"


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
