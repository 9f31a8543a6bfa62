"""Scores of methods on tasks as a table: mean [95 % interval] (seeds) in every cell, and over all tasks at the end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.tools.experiments.statistics import LARGEST, Estimate, interval, mean

Scores = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""Method → task → one number per seed."""
NOTHING = "–"
OVERALL = "mean of tasks"


@final
@dataclass(frozen=True)
class Table:
    """What was measured, method by method and task by task."""

    metric: str
    scores: Scores
    together: bool = True
    """Tasks are on one scale, so that a mean over them says something."""

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for row in self.scores.values() for task in row))

    def cell(self, method: str, task: str) -> str:
        """In one cell: `62.1 [58.0, 66.3] (5)`; of a lone seed there is no interval."""
        return told_estimate([self.scores[method][task]])

    def rows(self) -> list[list[str]]:
        """Heads, then a row for each method; the mean over tasks is of methods that have all of them."""
        tasks = self.tasks
        several = [OVERALL] if len(tasks) > 1 and self.together else []
        rows = [[self.metric, *tasks, *several]]
        for method, known in self.scores.items():
            cells = [told_estimate([known[task]]) if task in known else NOTHING for task in tasks]
            whole = len(known) == len(tasks) and all(len(seeds) for seeds in known.values())
            overall = [told_estimate(list(known.values())) if whole else NOTHING] if several else []
            rows.append([method, *cells, *overall])
        return rows

    def lines(self, width: int) -> Iterator[str]:
        """In columns where they fit, else a line for each cell."""
        rows = self.rows()
        table = list(aligned(rows))
        if all(len(line) <= width for line in table):
            yield from table
            return
        heads, *methods = rows
        long = [[row[0], head, cell] for row in methods for head, cell in zip(heads[1:], row[1:], strict=True)]
        yield from aligned([["method", "task", self.metric], *long])

    def markdown(self) -> str:
        heads, *methods = self.rows()
        return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *methods))

    def __str__(self) -> str:
        return "\n".join(aligned(self.rows()))


def told_estimate(tasks: Sequence[NDArray[np.float64]]) -> str:
    """Mean over tasks with its interval over seeds, and how many seeds: of each task, or the fewest and most. With
    a run that ended in NaN or infinity it is that."""
    counts = sorted({len(seeds) for seeds in tasks})
    if not counts or not counts[0]:
        return NOTHING
    told = str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    scores = np.concatenate(tasks)
    if (wrong := ~(np.abs(scores) <= LARGEST)).any():
        return f"{scores[wrong][0]:g} ({told})"
    return f"{told_interval(interval(mean, tasks))} ({told})"


def told_interval(estimate: Estimate) -> str:
    value, low, high = (told_number(number) for number in (estimate.value, estimate.low, estimate.high))
    return value if np.isnan(estimate.low) else f"{value} [{low}, {high}]"


def told_number(number: float) -> str:
    """With three digits that say something, or more: `-1,226.7`, `4.28`, `0.175`, `3e+20`."""
    if abs(number) >= 1e15:
        return f"{number:.3g}"
    if not number or abs(number) >= 1:
        return f"{number:,.1f}" if abs(number) >= 10 else f"{number:.2f}"
    return f"{number:.3g}"


def told_chance(estimate: Estimate) -> str:
    value, low, high = (f"{number:.2f}" for number in (estimate.value, estimate.low, estimate.high))
    return value if np.isnan(estimate.low) else f"{value} [{low}, {high}]"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """In columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
