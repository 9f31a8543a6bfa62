"""What a person sees while something long goes on: one line that keeps changing on a terminal and in a notebook, plain
lines now and then elsewhere, or nothing."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from understudy.core.arguments import as_truth
from understudy.core.wording import folded

LINE_SECONDS = 10.0
"""On a plain stream, at most one line per this many seconds."""
SHOWN_PER_SECOND = 4
WINDOW_SECONDS = 60.0
"""Speed is that of the last minute: what came before may have been warming up."""
BAR_WIDTH = 20
NOTEBOOK_WIDTH = 100
"""Letters of a line in a notebook's usual window."""


class Advance(Protocol):
    """How much is done in all, and a few words each that go with it, the last of which are left out first where there
    is no room; how many steps environments have made for it, where they are what is waited for."""

    def __call__(self, done: int, *notes: str, env_steps: int = 0) -> None: ...


Show = Callable[[], None]


def told_seconds(seconds: float) -> str:
    """A duration as people say it, in two units: 42 s, 3 min 20 s, 5 h 3 min, 2 days 7 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, name, small, small_name in ((86400, "days", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= 1000 * 86400:
            return "over 1,000 days"
        if whole >= large:
            count, rest = divmod(whole, large)
            named = "day" if name == "days" and count == 1 else name
            return f"{count:,} {named}" + (f" {rest // small} {small_name}" if rest // small else "")
    return f"{whole} s"


def told_rate(per_second: float, unit: str) -> str:
    """`1,234 updates/s`; of what takes longer than a second, `4.1 s per update`."""
    if per_second >= 1:
        return f"{per_second:,.0f} {unit}/s" if per_second >= 9.95 else f"{per_second:.1f} {unit}/s"
    return f"{told_seconds(1 / per_second)} per {unit.removesuffix('s')}"


@final
class Pace:
    """How far one task is, how fast it goes, and when it will be done. `now` is a clock's time in seconds."""

    def __init__(self, name: str, total: int, unit: str, now: float, *, done: int = 0, env_steps: int = 0) -> None:
        self.name, self.total, self.unit = name, total, unit
        self._began = now
        self._notes: tuple[str, ...] = ()
        self._samples = deque([(now, done, env_steps)])

    def advance(self, now: float, done: int, notes: Sequence[str], env_steps: int = 0) -> None:
        self._samples.append((now, done, env_steps))
        while len(self._samples) > 2 and now - self._samples[1][0] > WINDOW_SECONDS:
            self._samples.popleft()
        self._notes = tuple(filter(None, notes))

    @property
    def done(self) -> int:
        return self._samples[-1][1]

    @property
    def finished(self) -> bool:
        return self.done >= self.total

    def line(self, now: float, width: int) -> str:
        """In one line of at most `width` letters, all of it whole: what there is no room for is left out, first the
        notes, then the bar, the first note, the name, the time left and the speed."""
        count = f"{self.done:,}/{self.total:,} {self.unit}"
        speed, time_told = self._speed(), self._time(now)
        first, more = self._notes[:1], self._notes[1:]
        plain = [[self.name, count, speed, time_told], [count, speed, time_told], [count, time_told], [count]]
        full = [self.name, self._bar(), count, speed, time_told, *first]
        wishes = [full + list(more[:number]) for number in range(len(more), -1, -1)]
        wishes += [[self.name, count, speed, time_told, *first], *plain]
        lines = ("  ".join(filter(None, wish)) for wish in wishes)
        return next((line for line in lines if len(line) <= width), count)

    def sentence(self, now: float) -> str:
        """For a stream that has no edge."""
        count = f"{self.done:,}/{self.total:,} {self.unit}"
        return f"{self.name}: {', '.join(filter(None, (count, self._speed(), self._time(now), *self._notes)))}"

    def _bar(self) -> str:
        filled = round(BAR_WIDTH * min(self.done / max(self.total, 1), 1))
        return "━" * filled + "╌" * (BAR_WIDTH - filled)

    def _per_second(self) -> tuple[float, float]:
        """What was done, and steps of environments; 0 while that is not known."""
        (start, done, steps), (end, done_now, steps_now) = self._samples[0], self._samples[-1]
        passed = max(end - start, 1e-9)
        return (done_now - done) / passed, (steps_now - steps) / passed

    def _speed(self) -> str:
        done, steps = self._per_second()
        if steps > 0:
            return told_rate(steps, "env steps")
        return told_rate(done, self.unit) if done > 0 else ""

    def _time(self, now: float) -> str:
        if self.finished:
            return f"took {told_seconds(now - self._began)}"
        speed, _ = self._per_second()
        if speed <= 0:
            return "time left unknown"
        left = (self.total - self.done) / speed - (now - self._samples[-1][0])
        return f"{told_seconds(max(left, 1))} left"


@final
class Reporter:
    """Who speaks for one command or call; `quiet` says nothing but errors."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self._notebook = console is None and not quiet and in_notebook()
        self._console = console or Console(stderr=not self._notebook, force_jupyter=False)

    def say(self, text: str) -> None:
        if not self.quiet:
            if self._console.is_terminal:
                text = "\n".join(folded(line, self._console.width) for line in text.split("\n"))
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def task(self, name: str, total: int, unit: str, done: int = 0, *, env_steps: int = 0) -> Iterator[Advance]:
        """Yields `advance(done, *notes)`, told from `done` on, and from that many steps of environments."""
        pace = Pace(name, total, unit, time.monotonic(), done=done, env_steps=env_steps)
        if self.quiet:
            yield lambda done, *notes, env_steps=0: None
        elif self._notebook:
            yield _shown(pace, _notebook_line(pace), 1 / SHOWN_PER_SECOND)
        elif self._console.is_terminal and not self._console.is_dumb_terminal:
            with self._live(pace):
                yield lambda done, *notes, env_steps=0: pace.advance(time.monotonic(), done, notes, env_steps)
        else:
            yield _shown(pace, lambda: self.say(pace.sentence(time.monotonic())), LINE_SECONDS)

    @contextmanager
    def board(self, draw: Callable[[int, int], Sequence[str]], sentence: Callable[[], str]) -> Iterator[Show]:
        """Yields what shows lines that are drawn anew each time, for so many letters and lines; where nothing can be
        drawn anew, a sentence now and then, and at the end."""
        if self.quiet:
            yield lambda: None
        elif self._console.is_terminal and not self._console.is_dumb_terminal and not self._notebook:

            def drawn() -> Text:
                text = "\n".join(draw(self._console.width, self._console.height - 1))
                return Text(text, no_wrap=True, overflow="crop")

            with Live(drawn(), console=self._console, auto_refresh=False) as live:
                yield lambda: live.update(drawn(), refresh=True)
        else:
            shown = time.monotonic()

            def show() -> None:
                nonlocal shown
                if time.monotonic() - shown >= LINE_SECONDS:
                    shown = time.monotonic()
                    self.say(sentence())

            yield show
            self.say(sentence())

    def _live(self, pace: Pace) -> Live:
        def line() -> Text:
            text = pace.line(time.monotonic(), self._console.width)
            return Text(text, no_wrap=True, overflow="crop")

        return Live(console=self._console, get_renderable=line, refresh_per_second=SHOWN_PER_SECOND)


def _shown(pace: Pace, show: Callable[[], None], seconds: float) -> Advance:
    """Shows at most once in so many seconds, and the end."""
    shown = time.monotonic()

    def advance(done: int, *notes: str, env_steps: int = 0) -> None:
        nonlocal shown
        now = time.monotonic()
        pace.advance(now, done, notes, env_steps)
        if pace.finished or now - shown >= seconds:
            shown = now
            show()

    return advance


def in_notebook() -> bool:
    """Whether what is printed appears below a notebook's cell."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def _notebook_line(pace: Pace) -> Callable[[], None]:
    """A line below the cell that is written anew; notebooks do that without further packages."""
    from importlib import import_module

    display: Any = import_module("IPython.display").display

    def bundle() -> dict[str, str]:
        return {"text/plain": pace.line(time.monotonic(), NOTEBOOK_WIDTH)}

    handle = display(bundle(), raw=True, display_id=True)
    return lambda: handle.update(bundle(), raw=True)


SILENT = Reporter(quiet=True)


def reporter_for(progress: bool, reporter: Reporter | None = None) -> Reporter:
    """Whoever reports to a caller from Python: the one that is given, or one that shows progress if it is wanted."""
    return reporter or (Reporter() if as_truth(progress, "progress") else SILENT)
