"""What may be said of a comparison, in one sentence that claims no more than the seeds bear out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.core.wording import counted
from understudy.tools.experiments.forecast import Forecast, more_seeds
from understudy.tools.experiments.sequential import (
    ALIKE,
    BETTER,
    MOST_CLOSED,
    UNDECIDED,
    WORSE,
    Decision,
    Decisions,
    Design,
    decide,
    spread,
)
from understudy.tools.experiments.statistics import (
    Estimate,
    Statistic,
    difference,
    interval,
    iqm,
    mean,
    median,
    optimality_gap,
    paired_interval,
    probability_of_improvement,
    seed_scores,
)
from understudy.tools.experiments.table import told_chance, told_interval

Array = NDArray[np.float64]
Scores = Mapping[str, Mapping[str, ArrayLike]]
"""Method → task → one number per seed."""
Table = dict[str, dict[str, Array]]
MOST_NAMED = 6
"""Methods in a list of names."""
MOST_SHOWN = 3
"""Methods that cannot be told from the leader, each with its number; of more the next best stands for all."""
MANY = 200
"""More seeds than anybody would wait for."""


@final
@dataclass(frozen=True)
class Row:
    """A method in a summary."""

    method: str
    seeds: tuple[int, int]
    """Fewest and most per task that is compared."""
    estimates: Mapping[str, Estimate]
    """`IQM`, `mean`, `median`, and `optimality gap` if there is a target; over the compared tasks, and none if there
    are none."""
    lacking: tuple[str, ...]
    """Tasks others have and it does not: they are left out for all."""


def summary(scores: Scores, *, target: float = math.nan) -> list[Row]:
    """A row per method, over the tasks that every method has; methods without a single seed hold up nobody."""
    table = _arrays(scores)
    common, every = _common(table), _known_tasks(table)
    rows = []
    for method, row in table.items():
        tasks = [row[task] for task in common if len(row.get(task, ()))]
        compared = bool(tasks)
        seeds = [len(scores) for scores in tasks] or [0]
        lacking = tuple(task for task in every if not len(row.get(task, ())))
        estimates = _estimates(tasks, target) if compared else {}
        rows.append(Row(method, (min(seeds), max(seeds)), estimates, lacking))
    return rows


def _estimates(tasks: Sequence[Array], target: float) -> dict[str, Estimate]:
    found = {"IQM": interval(iqm, tasks), "mean": interval(mean, tasks), "median": interval(median, tasks)}
    if not math.isnan(target):
        found["optimality gap"] = interval(partial(optimality_gap, target=target), tasks)
    return found


def verdict(
    scores: Scores,
    *,
    lowest_is_best: bool = False,
    decisions: Decisions | None = None,
    forecasts: Sequence[Forecast] = (),
    one_scale: bool = True,
) -> str:
    """Who is better, as far as the seeds can tell; of tasks that are not on `one_scale`, each in its own deviations.

    `decisions` of the sequential test decide where seeds were added until it was decided; otherwise one permutation
    test of all pairs does, of as many seeds as every method has on every task. That is no test for those who looked
    before and went on.
    """
    table = {method: row for method, row in _arrays(scores).items() if any(map(len, row.values()))}
    common = _common(table)
    if not table:
        return "There are no results yet."
    if not common:
        return f"Nothing can be compared: no task has results of all of {_few(list(table), 'and', _methods(table))}."
    cells = {method: [row[task] for task in common] for method, row in table.items()}
    where = f"on {_tasks(common)}"
    by_spread = not one_scale and len(common) > 1
    if by_spread:
        cells, where = _by_spread(cells), f"{where} (each in standard deviations of its scores)"
    fewest, most = _seeds(cells)
    if len(cells) == 1:
        (method, tasks), *_ = cells.items()
        return f"{method} {where}: IQM {told_interval(interval(iqm, tasks))}, {_seed_words(cells)}."
    if most == 1:
        return f"One seed each: nothing can be said of {_few(list(cells), 'and', _methods(cells))}."
    if fewest == 1:
        single = [method for method, tasks in cells.items() if min(map(len, tasks)) == 1]
        some = _few(single, "and", _methods(single))
        return f"One seed of {some} on some task: nothing can be said yet; every cell needs two or more."
    if decisions is None:
        design = Design(group=fewest, looks=1, by_spread=by_spread)
        decisions = decide({m: {t: table[m][t] for t in common} for m in table}, design, lowest_is_best=lowest_is_best)
    return _sentence(cells, where, decisions, forecasts, lowest_is_best)


def _sentence(
    cells: Mapping[str, list[Array]],
    where: str,
    decisions: Decisions,
    forecasts: Sequence[Forecast],
    lowest_is_best: bool,
) -> str:
    pairs = [pair for pair in decisions.pairs if pair.a in cells and pair.b in cells]
    if not pairs:
        some = _few(list(cells), "and", _methods(cells))
        return f"Nothing can be compared yet: there are results of {some} alone."
    leader = _leader(cells, pairs, lowest_is_best)
    rivals = [pair.b if pair.a == leader else pair.a for pair in pairs if leader in (pair.a, pair.b)]
    beaten = [other for other in rivals if decisions.of(leader, other).verdict == BETTER]
    unsure = [other for other in rivals if decisions.of(leader, other).verdict in (UNDECIDED, ALIKE)]
    tested = _tested(cells, pairs)
    some = f", of which the first {tested} decide" if tested < _seeds(cells)[1] else ""
    seeds = f"{_seed_words(cells)}{some}"
    if not unsure:
        numbers = _against(cells, leader, beaten, lowest_is_best)
        return f"{leader} is better than {_all_of(beaten, cells)} {where}{numbers}, {seeds}."
    shown = unsure if len(unsure) <= MOST_SHOWN else [_next(cells, unsure, lowest_is_best)]
    iqms = ", ".join(f"{method} {told_interval(interval(iqm, cells[method]))}" for method in (leader, *shown))
    seen = {method: [scores[:tested] for scores in tasks] for method, tasks in cells.items()}
    more = told_more(seen, [(leader, other) for other in unsure], forecasts, _level(len(cells)))
    others = _few(unsure, "or", f"any of {'' if beaten else 'the '}{len(unsure)} others")
    first = f"Cannot tell {leader} from {others} {where} with {seeds}"
    also = f"; {leader} is better than {_few(beaten, 'and', f'the {len(beaten)} others')}" if beaten else ""
    return f"{first} (IQM {iqms}){more}{also}."


def _leader(cells: Mapping[str, list[Array]], pairs: Sequence[Decision], lowest_is_best: bool) -> str:
    """Of those who are compared, who has fewest decisions against itself, then most for it, then the best IQM."""
    won = {name: 0 for pair in pairs for name in (pair.a, pair.b)}
    lost = dict(won)
    for pair in pairs:
        winner, loser = (pair.b, pair.a) if pair.verdict == WORSE else (pair.a, pair.b)
        if pair.verdict in (BETTER, WORSE):
            won[winner] += 1
            lost[loser] += 1
    sign = -1 if lowest_is_best else 1
    return max(won, key=lambda method: (-lost[method], won[method], sign * iqm(cells[method])))


def _tested(cells: Mapping[str, Sequence[Array]], pairs: Sequence[Decision]) -> int:
    """How many seeds of each method and task decided, where that is one number for all; else all there are."""
    most = _seeds(cells)[1]
    known = {pair.seeds for pair in pairs}
    return min(most, *known) if len(known) == 1 and known != {0} else most


def _few(names: Sequence[str], word: str, many: str) -> str:
    """Their names; of more than anybody reads `many`."""
    return _listed(names, word) if len(names) <= MOST_NAMED else many


def _methods(names: Iterable[str]) -> str:
    return f"{len([*names])} methods"


def _next(cells: Mapping[str, list[Array]], methods: Sequence[str], lowest_is_best: bool) -> str:
    """Whose IQM is the best of these."""
    sign = -1 if lowest_is_best else 1
    return max(methods, key=lambda method: sign * iqm(cells[method]))


def _against(cells: Mapping[str, list[Array]], leader: str, beaten: Sequence[str], lowest_is_best: bool) -> str:
    """The numbers beside the next best. Means decide: a lead that is in nothing but them is said to be."""

    def beside(other: str) -> tuple[list[Array], list[Array]]:
        return (cells[other], cells[leader]) if lowest_is_best else (cells[leader], cells[other])

    def told(statistic: Statistic) -> str:
        ours, theirs = (told_interval(interval(statistic, cells[method])) for method in (leader, shown))
        return f"{statistic.__name__.replace('iqm', 'IQM')} {ours} against {theirs}{whose}"

    contrary = [
        other
        for other in beaten
        if difference(iqm)(*beside(other)) < 0 or probability_of_improvement(*beside(other)) < 0.5
    ]
    shown = _next(cells, contrary or beaten, lowest_is_best)
    whose = f" of {shown}" if len(beaten) > 1 else ""
    chance = f"P(improvement) {told_chance(paired_interval(probability_of_improvement, *beside(shown)))}"
    return f" on average alone: {told(mean)}, {told(iqm)}, {chance}" if contrary else f": {told(iqm)}, {chance}"


def told_more(
    cells: Mapping[str, list[Array]], pairs: Sequence[tuple[str, str]], forecasts: Sequence[Forecast], level: float
) -> str:
    """How many more seeds it would take to tell all of these pairs apart, each at `level`, or the easier half if not
    all can be."""
    counts = sorted(more_by_pair(cells, pairs, forecasts, level))
    within = [count for count in counts if count <= MANY]
    if not within:
        return "; more seeds will hardly help"
    if len(within) == len(counts):
        return f"; about {counted(round(counts[-1]), 'more seed')} would"
    most = within[len(within) // 2]
    return f"; about {counted(round(most), 'more seed')} would tell {sum(count <= most for count in within)} of them"


def more_by_pair(
    cells: Mapping[str, list[Array]], pairs: Sequence[tuple[str, str]], forecasts: Sequence[Forecast], level: float
) -> list[float]:
    """For each, how many more seeds, tested at `level`."""
    told = {frozenset((known.a, known.b)): known.seeds for known in forecasts}
    return [
        told[pair] if not math.isnan(told.get(pair, math.nan)) else more_seeds(cells[a], cells[b], level)
        for a, b, pair in ((a, b, frozenset((a, b))) for a, b in pairs)
    ]


def _level(methods: int) -> float:
    """At which the test of so many methods can count on telling two of them apart."""
    shares = methods // 2 if methods <= MOST_CLOSED else methods * (methods - 1) // 2
    return Design().alpha / shares


def _arrays(scores: Scores) -> Table:
    return {
        method: {task: seed_scores(seeds, f"scores of '{method}' on '{task}'") for task, seeds in row.items()}
        for method, row in scores.items()
    }


def _by_spread(cells: Mapping[str, Sequence[Array]]) -> dict[str, list[Array]]:
    """Each task less its mean, in standard deviations of all scores on it."""
    together = [np.concatenate(scores) for scores in zip(*cells.values(), strict=True)]
    scales = [(float(scores.mean()), spread(scores)) for scores in together]
    return {
        method: [(scores - middle) / scale for scores, (middle, scale) in zip(tasks, scales, strict=True)]
        for method, tasks in cells.items()
    }


def _known_tasks(table: Table) -> list[str]:
    return list(dict.fromkeys(task for row in table.values() for task, seeds in row.items() if len(seeds)))


def _common(table: Table) -> list[str]:
    """Tasks of which every method that has anything has a seed."""
    rows = [row for row in table.values() if any(map(len, row.values()))]
    return [task for task in _known_tasks(table) if all(len(row.get(task, ())) for row in rows)]


def _seeds(cells: Mapping[str, Sequence[Array]]) -> tuple[int, int]:
    counts = [len(scores) for tasks in cells.values() for scores in tasks]
    return min(counts), max(counts)


def _seed_words(cells: Mapping[str, Sequence[Array]]) -> str:
    fewest, most = _seeds(cells)
    plural = "" if most == 1 else "s"
    return f"{most} seed{plural}" if fewest == most else f"{fewest} to {most} seeds"


def _tasks(common: Sequence[str]) -> str:
    return common[0] if len(common) == 1 else f"{len(common)} tasks"


def _all_of(beaten: Sequence[str], cells: Mapping[str, Sequence[Array]]) -> str:
    return f"all {len(beaten)} others" if len(beaten) == len(cells) - 1 > 3 else _listed(beaten)


def _listed(names: Sequence[str], word: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
