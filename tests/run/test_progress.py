"""Progress: one line that is never cut, what is left out of it first, and how durations and speeds are told."""

import io
import re
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from understudy.run.progress import NOTEBOOK_WIDTH, Pace, Reporter, told_rate, told_seconds

LOSSES = ("return -123.4", "critic 0.123", "actor -4.56e+03", "value 12.3")


def halfway() -> Pace:
    """1,000 of 2,000,000 updates in ten seconds."""
    pace = Pace("training", 2_000_000, "updates", 100.0)
    pace.advance(110.0, 1000, LOSSES)
    return pace


def test_durations_are_told_in_two_units() -> None:
    told = {
        0.04: "0.0 s",
        9.94: "9.9 s",
        9.96: "10 s",
        59.4: "59 s",
        59.6: "1 min",
        200: "3 min 20 s",
        3600: "1 h",
        18180: "5 h 3 min",
        86400: "1 day",
        198000: "2 days 7 h",
        1e10: "over 1,000 days",
    }
    assert {seconds: told_seconds(seconds) for seconds in told} == told


def test_slow_rates_are_told_as_seconds_per_update() -> None:
    told = {1234.4: "1,234 updates/s", 9.96: "10 updates/s", 1.0: "1.0 updates/s", 0.25: "4.0 s per update"}
    assert {rate: told_rate(rate, "updates") for rate in told} == told
    assert told_rate(1 / 200, "env steps") == "3 min 20 s per env step"


def test_speed_and_time_left_are_those_of_the_last_minute() -> None:
    pace = Pace("training", 10_000, "updates", 0.0, done=500)
    pace.advance(100.0, 510, ())  # a slow beginning
    for second in range(101, 171):
        pace.advance(float(second), pace.done + 10, ())
    assert pace.done == 1210
    assert pace.sentence(170.0) == "training: 1,210/10,000 updates, 10 updates/s, 14 min 39 s left"
    assert pace.sentence(180.0).endswith("14 min 29 s left")  # the clock goes on between two updates


def test_what_is_not_known_is_said_so() -> None:
    pace = Pace("training", 10**10, "updates", 5.0, done=3)
    assert pace.sentence(900.0) == "training: 3/10,000,000,000 updates, time left unknown"
    pace.advance(1000.0, 3, ())
    assert pace.sentence(1000.0).endswith("time left unknown")
    pace.advance(1001.0, 4, ())
    assert pace.sentence(1001.0).endswith("16 min 36 s per update, over 1,000 days left")


def test_worlds_are_told_in_steps_of_environments_from_where_a_run_goes_on() -> None:
    pace = Pace("training", 100, "updates", 0.0, done=50, env_steps=1_000_000)
    pace.advance(2.0, 52, ("return 3.0",), env_steps=1_040_960)
    assert pace.sentence(2.0) == "training: 52/100 updates, 20,480 env steps/s, 48 s left, return 3.0"


def test_the_end_tells_how_long_it_took() -> None:
    pace = halfway()
    pace.advance(300.0, 2_000_000, ("return 1.0",))
    assert "took 3 min 20 s" in pace.sentence(300.0)
    assert "took 3 min 20 s" in pace.line(300.0, 80)


def test_a_line_fits_and_holds_whole_words_only() -> None:
    pace = halfway()
    words = set(pace.line(110.0, 1000).split())
    left_out = [word for word in words if word not in pace.line(110.0, 80).split()]
    for width in range(24, 201):
        line = pace.line(110.0, width)
        assert len(line) <= width
        assert set(line.split()) <= words
        assert "1,000/2,000,000 updates" in line
    assert "0.123" in left_out  # losses first
    for width in (60, 80):
        assert "100 updates/s" in pace.line(110.0, width)
        assert "5 h 33 min left" in pace.line(110.0, width)
    assert "return -123.4" in pace.line(110.0, 80)
    assert pace.line(110.0, 200).endswith("value 12.3")


def test_a_terminal_gets_one_line_that_changes() -> None:
    for width in (60, 80, 200):
        output = io.StringIO()
        reporter = Reporter(console=Console(file=output, force_terminal=True, width=width, legacy_windows=False))
        with reporter.task("training", 20_000, "updates") as advance:
            for done in range(0, 20_001, 2500):
                advance(done, *LOSSES)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
        shown = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
        assert all(len(line) <= width for line in shown), shown
        assert "20,000/20,000 updates" in shown[-1]
        assert "took" in shown[-1]


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("understudy.run.progress.time.monotonic", lambda: clock[0])
    output = io.StringIO()
    with Reporter(console=Console(file=output, width=40)).task("training", 100, "updates") as advance:
        for done in range(101):
            clock[0] = done * 0.5
            advance(done, *LOSSES)
    lines = output.getvalue().splitlines()
    assert [line.split("/")[0] for line in lines] == [f"training: {done}" for done in (20, 40, 60, 80, 100)]
    assert lines[-1] == "training: 100/100 updates, 2.0 updates/s, took 50 s, " + ", ".join(LOSSES)


def test_silence_is_silent() -> None:
    output = io.StringIO()
    reporter = Reporter(quiet=True, console=Console(file=output, force_terminal=True))
    with reporter.task("training", 2, "updates") as advance:
        advance(2, "return 1")
    reporter.say("something")
    assert output.getvalue() == ""


class ZMQInteractiveShell:
    """What a notebook's kernel is called there."""


class Handle:
    def __init__(self, shown: list[str], bundle: dict[str, str]) -> None:
        self.shown = shown
        self.shown.append(bundle["text/plain"])

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown[-1] = bundle["text/plain"]


def test_a_notebook_gets_one_line_that_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel and its display are stand-ins for IPython's; everything else is real."""
    shown: list[str] = []

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        return Handle(shown, bundle)

    shell: Any = ModuleType("IPython")
    shell.get_ipython = ZMQInteractiveShell
    shell.display = ModuleType("IPython.display")
    shell.display.display = display
    for name, module in {
        "ipykernel": ModuleType("ipykernel"),
        "IPython": shell,
        "IPython.display": shell.display,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    reporter = Reporter()
    reporter.say("about to begin")
    with reporter.task("training", 30, "updates") as advance:
        assert shown == ["training  ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  0/30 updates  time left unknown"]
        for done in range(31):
            advance(done, *LOSSES)
    assert len(shown) == 1
    assert "30/30 updates" in shown[0]
    assert "took" in shown[0]
    assert len(shown[0]) <= NOTEBOOK_WIDTH
    assert capsys.readouterr() == ("about to begin\n", "")
