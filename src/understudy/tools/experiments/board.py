"""How the runs of an experiment stand, as lines: one for each run where there is room, else one for each cell."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import final

from understudy.core.wording import counted
from understudy.run.progress import Reporter, Show, told_rate, told_seconds
from understudy.tools.experiments.manager import Standing, Watching, seconds_left
from understudy.tools.experiments.plan import Plan

HEADS = ("method", "task", "seed", "state", "updates", "updates/s", "left")
LEAST = ("updates/s", "left", "updates", "task")
"""What there is least need of, where there is no room for all."""
STATES = ("running", "elsewhere", "failed", "waiting", "finished")
"""In the order in which they are worth a line."""


def board_of(reporter: Reporter, jobs: int) -> Watching:
    """What the manager opens to show how runs stand."""

    def watching(plan: Plan, standings: Sequence[Standing]) -> AbstractContextManager[Show]:
        board = Board(plan, standings, jobs)
        return reporter.board(board.lines, board.sentence)

    return watching


@final
@dataclass(frozen=True)
class Board:
    plan: Plan
    standings: Sequence[Standing]
    jobs: int

    def sentence(self, width: int = 10_000) -> str:
        """As much of it as fits, the end left out first."""
        counts = Counter(standing.state for standing in self.standings)
        told = [f"{counts['finished']} of {counted(len(self.standings), 'run')} finished"]
        told += [f"{counts[state]} {state}" for state in ("running", "elsewhere", "failed") if counts[state]]
        rate = sum(standing.rate for standing in self.standings if standing.state == "running")
        told += [told_rate(rate, "updates")] if rate else []
        left = seconds_left(self.standings, self.jobs)
        told += [f"{told_seconds(left)} left"] if left > 0 else []
        lines = [f"{self.plan.suite.name}: {', '.join(told[:most])}" for most in range(len(told), 0, -1)]
        return next((line for line in lines if len(line) <= width), lines[-1])

    def lines(self, width: int, height: int) -> list[str]:
        """At most so many of at most so many letters: runs, else cells, else those of them that are most alive."""
        rows = [_run_cells(standing) for standing in _by_state(self.standings)]
        if len(rows) > height - 3:
            cells: dict[tuple[str, str], list[Standing]] = {}
            for standing in self.standings:
                cells.setdefault((standing.planned.method, standing.planned.task), []).append(standing)
            rows = [_joint_cells(some) for some in sorted(cells.values(), key=_first_state)]
        room = max(height - 3, 1)
        more = [f"… and {len(rows) - room} more"] if len(rows) > room else []
        table = [(*HEADS, self.plan.metric.removeprefix("eval/")), *rows[:room]]
        shown = _columns(table, width, ("task", *LEAST) if len(self.plan.tasks) == 1 else LEAST)
        return [line[:width] for line in (self.sentence(width), *shown, *more)]


def _by_state(standings: Sequence[Standing]) -> list[Standing]:
    return sorted(standings, key=lambda standing: STATES.index(standing.state))


def _first_state(standings: Sequence[Standing]) -> int:
    return min(STATES.index(standing.state) for standing in standings)


def _run_cells(standing: Standing) -> tuple[str, ...]:
    planned, running = standing.planned, standing.state == "running"
    tried = f", {standing.attempts} tried" if standing.state == "waiting" and standing.attempts else ""
    done, wanted = standing.updates, planned.config.updates
    left = (wanted - done) / standing.rate if running and standing.rate else 0.0
    return (
        planned.method,
        planned.task,
        str(planned.seed),
        f"{standing.state}{tried}",
        f"{done:,}/{wanted:,}" if standing.state != "finished" else f"{done:,}",
        f"{standing.rate:,.0f}" if running and standing.rate else "",
        told_seconds(left) if left else "",
        _number(standing.last),
    )


def _joint_cells(standings: Sequence[Standing]) -> tuple[str, ...]:
    """Of the seeds of one cell."""
    counts = Counter(standing.state for standing in standings)
    done, wanted = (sum(numbers) for numbers in zip(*map(_progress, standings), strict=True))
    rate = sum(standing.rate for standing in standings if standing.state == "running")
    scores = [standing.last for standing in standings if not math.isnan(standing.last)]
    return (
        standings[0].planned.method,
        standings[0].planned.task,
        f"{counts['finished']}/{len(standings)}",
        ", ".join(f"{counts[state]} {state}" for state in ("running", "elsewhere", "failed") if counts[state]),
        f"{done:,}/{wanted:,}",
        f"{rate:,.0f}" if rate else "",
        told_seconds((wanted - done) / rate) if rate else "",
        _number(sum(scores) / len(scores) if scores else math.nan),
    )


def _progress(standing: Standing) -> tuple[int, int]:
    return standing.updates, standing.planned.config.updates


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _columns(rows: Sequence[Sequence[str]], room: int, least: Sequence[str]) -> Iterator[str]:
    """Those that there is room for; the first four are words."""
    heads = rows[0]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    shown = list(range(len(heads)))
    for name in least:
        if heads.index(name) in shown and sum(widths[column] + 2 for column in shown) - 2 > room:
            shown.remove(heads.index(name))
    for row in rows:
        cells = [
            row[column].ljust(widths[column]) if column < 4 else row[column].rjust(widths[column]) for column in shown
        ]
        yield "  ".join(cells).rstrip()
