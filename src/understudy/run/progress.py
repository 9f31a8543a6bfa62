"""What a person sees while something long goes on: a bar on a terminal, plain lines elsewhere, or nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

LINE_SECONDS = 10.0
"""On a plain stream, at most one line per this many seconds."""


class _Speed(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f} {self._unit}/s")


@final
class Reporter:
    """The console of one command; `quiet` says nothing but errors."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self.quiet = quiet

    def say(self, text: str) -> None:
        if not self.quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def task(self, name: str, total: int, unit: str, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Yields `advance(done, note)`: how much is done in all, and a few words beside the bar."""
        if self.quiet:
            yield lambda done, note: None
        elif self._console.is_terminal:
            with self._bar(unit) as bar:
                task = bar.add_task(name, total=total, completed=done, note="")
                yield lambda done, note: bar.update(task, completed=done, note=note)
        else:
            yield self._lines(name, total, unit, done)

    def _bar(self, unit: str) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Speed(unit),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            refresh_per_second=4,
        )

    def _lines(self, name: str, total: int, unit: str, begun: int) -> Callable[[int, str], None]:
        started = time.monotonic()
        last_line = started

        def advance(done: int, note: str) -> None:
            nonlocal last_line
            now = time.monotonic()
            if done >= total or now - last_line >= LINE_SECONDS:
                last_line = now
                speed = (done - begun) / max(now - started, 1e-9)
                left = (total - done) / max(speed, 1e-9)
                eta = f", {left:,.0f} s left" if done < total else ""
                self.say(f"{name}: {done:,}/{total:,} {unit}, {speed:,.0f}/s{eta}{f', {note}' if note else ''}")

        return advance


SILENT = Reporter(quiet=True)


def reporter_for(progress: bool, reporter: Reporter | None = None) -> Reporter:
    """Whoever reports to a caller from Python: the one that is given, or one that shows progress if it is wanted."""
    return reporter or (Reporter() if progress else SILENT)
