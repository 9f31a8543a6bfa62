"""Working off a plan: what is begun, tried again, waited for and given up; and what is shown meanwhile."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import final

import pytest
from short_runs import small_suite

from understudy.core.errors import RunError
from understudy.core.lock import LOCK, lock_folder, release
from understudy.core.stopping import StoppedError
from understudy.run.progress import SILENT
from understudy.run.suites import Suite
from understudy.tools.experiments.board import Board
from understudy.tools.experiments.manager import MOST_ATTEMPTS, Manager, Standing, cores, seconds_left, usual_jobs
from understudy.tools.experiments.plan import Narrowing, Plan, make_plan
from understudy.tools.experiments.work import Outcome

FINE, CRASHED = Outcome("finished"), Outcome("failed", "its process ended with SIGSEGV.", retry=True)
HOPELESS, BUSY = Outcome("failed", "no such file."), Outcome("busy", "another process is writing it.", retry=True)


@final
class Scripted:
    """A launcher whose work ends at once, as it is told; it remembers what it was asked to do."""

    def __init__(self, outcomes: Callable[[str], Outcome], stop_at: int = 0) -> None:
        self.outcomes, self.stop_at = outcomes, stop_at
        self.done: list[str] = []
        self.running: dict[int, str] = {}
        self.cancelled: set[int] = set()
        self.most = 0
        self.closed = False
        self.slow_to_save = 3
        """So often it is asked in vain whether those that were cancelled are saved."""

    def submit(self, directory: str, config: str) -> int:
        self.done.append(directory)
        self.running[len(self.done)] = directory
        self.most = max(self.most, len(self.running))
        return len(self.done)

    def poll(self, seconds: float) -> Mapping[int, Outcome]:
        if len(self.done) == self.stop_at and not self.cancelled:
            signal.raise_signal(signal.SIGTERM)
            return {}
        if self.cancelled and self.slow_to_save:
            self.slow_to_save -= 1
            return {}
        if self.cancelled:
            stopped = Outcome("stopped", "saved at update 7.", retry=True)
            ended = {handle: stopped for handle in self.running if handle in self.cancelled}
        else:
            first = next(iter(self.running))
            ended = {first: self.outcomes(self.running[first])}
        for handle in ended:
            del self.running[handle]
        return ended

    def cancel(self, handle: int) -> None:
        assert handle not in self.cancelled, "whoever is told twice to stop does so without saving"
        self.cancelled.add(handle)

    def close(self) -> None:
        self.closed = True


@contextmanager
def nobody_looks(plan: Plan, standings: Sequence[Standing]) -> Iterator[Callable[[], None]]:
    yield lambda: None


def planned(out: Path, seeds: int = 2) -> Plan:
    plan = make_plan(Suite.parse(small_suite()), Narrowing(out=out, seeds=seeds))
    return Plan(plan.suite, plan.out, plan.runs, [], plan.metric)


def book(out: Path) -> list[tuple[str, int, str]]:
    lines = [json.loads(line) for line in (out / "bench.jsonl").read_text().splitlines()]
    return [(line["outcome"], line["attempt"], line["reason"]) for line in lines]


def test_what_crashes_is_tried_again_after_the_others_and_given_up_at_last(tmp_path: Path) -> None:
    crashes = {"BC/swing/0": 2, "half-of-BC/swing/1": 99}

    def outcome(directory: str) -> Outcome:
        name = str(Path(directory).relative_to(tmp_path))
        crashes[name] = crashes.get(name, 0) - 1
        return CRASHED if crashes[name] >= 0 else HOPELESS if "IQL" in name and "1" in name[-1] else FINE

    launcher = Scripted(outcome)
    standings = Manager(planned(tmp_path), launcher, 3, SILENT, nobody_looks).run()
    found = {str(one.planned.directory.relative_to(tmp_path)): (one.state, one.attempts) for one in standings}
    assert found == {
        "BC/swing/0": ("finished", 3),
        "half-of-BC/swing/0": ("finished", 1),
        "IQL-0.9/swing/0": ("finished", 1),
        "BC/swing/1": ("finished", 1),
        "half-of-BC/swing/1": ("failed", MOST_ATTEMPTS),
        "IQL-0.9/swing/1": ("failed", 1),
    }
    assert (launcher.most, launcher.closed) == (3, True)
    assert launcher.done.index(str(tmp_path / "BC/swing/1")) < len(launcher.done) - 1 - launcher.done[::-1].index(
        str(tmp_path / "BC/swing/0")
    )
    kept = book(tmp_path)
    assert kept.count(("failed", 1, CRASHED.reason)) == 2
    assert ("failed", 1, HOPELESS.reason) in kept
    assert sum(outcome == "finished" for outcome, _, _ in kept) == 4


def test_a_run_that_another_process_works_on_is_waited_for_and_counts_as_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.tools.experiments.manager.BUSY_SECONDS", 0.05)
    answers = iter([BUSY, BUSY, FINE, FINE, FINE])
    launcher = Scripted(lambda directory: next(answers))
    standings = Manager(planned(tmp_path, 1), launcher, 1, SILENT, nobody_looks).run()
    assert {(one.state, one.attempts) for one in standings} == {("finished", 1)}
    assert len(launcher.done) == 5


def test_a_signal_has_runs_saved_and_says_how_to_go_on(tmp_path: Path) -> None:
    launcher = Scripted(lambda directory: FINE, stop_at=4)
    with pytest.raises(StoppedError) as caught:
        Manager(planned(tmp_path), launcher, 2, SILENT, nobody_looks).run()
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert "2 of 6 runs finished, the others are saved as far as they came" in str(caught.value)
    assert "The same command goes on." in str(caught.value)
    assert (launcher.cancelled, launcher.running, launcher.closed) == ({3, 4}, {}, True)
    assert book(tmp_path)[-1] == ("stopped", 1, "saved at update 7.")


def test_how_fast_a_run_is_counts_from_where_it_was_when_it_was_begun_here(tmp_path: Path) -> None:
    plan = planned(tmp_path, 1)
    run = plan.runs[0].directory
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"updates": 100}\n')
    found = standing(plan, 0, state="waiting")
    found.look(plan.metric, 5.0)
    assert (found.updates, found.rate) == (100, 0.0)
    found.state, found.began, found.from_updates = "running", 10.0, 100
    (run / "metrics.jsonl").write_text('{"updates": 100}\n{"updates": 120}\n')
    (run / "eval.jsonl").write_text('{"updates": 120, "eval/return_mean": -7.5}\n')
    found.look(plan.metric, 12.0)
    assert (found.updates, found.rate, found.last) == (120, 10.0, -7.5)


def test_a_second_manager_is_refused(tmp_path: Path) -> None:
    handle = lock_folder(tmp_path, RunError, "", "")
    try:
        with pytest.raises(RunError, match=r"another process \(pid \d+\) is writing it"):
            Manager(planned(tmp_path), Scripted(lambda directory: FINE), 1, SILENT, nobody_looks).run()
    finally:
        release(handle)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def standing(plan: Plan, number: int, **facts: object) -> Standing:
    found = Standing(plan.runs[number])
    for name, value in facts.items():
        setattr(found, name, value)
    return found


def test_the_board_shows_runs_where_there_is_room_else_cells_else_the_liveliest(tmp_path: Path) -> None:
    plan = planned(tmp_path, 2)
    standings = [
        standing(plan, 0, state="finished", updates=400, last=-950.5),
        standing(plan, 1, state="running", updates=100, rate=50.0),
        standing(plan, 2, state="failed", updates=40, reason="no such file."),
        *(standing(plan, number) for number in (3, 4)),
        standing(plan, 5, attempts=2),
    ]
    board = Board(plan, standings, 2)
    lines = board.lines(100, 20)
    assert lines[0] == "small: 1 of 6 runs finished, 1 running, 1 failed, 50 updates/s, 15 s left"
    assert lines[1].split() == ["method", "task", "seed", "state", "updates", "updates/s", "left", "return_mean"]
    assert lines[2].split() == ["half", "of", "BC", "swing", "0", "running", "100/400", "50", "6.0", "s"]
    assert lines[3].split() == ["IQL,", "τ", "0.9", "swing", "0", "failed", "40/400"]
    assert lines[6].split() == ["IQL,", "τ", "0.9", "swing", "1", "waiting,", "2", "tried", "0/400"]
    assert lines[7].split() == ["BC", "swing", "0", "finished", "400", "-950.5"]
    cells = board.lines(100, 7)
    assert len(cells) == 5
    assert cells[2].split() == ["half", "of", "BC", "swing", "0/2", "1", "running", "100/800", "50", "14", "s"]
    assert board.lines(100, 5)[-1] == "… and 1 more"
    assert all(len(line) <= 30 for line in board.lines(30, 20))
    narrow = board.lines(60, 20)
    assert narrow[0] == "small: 1 of 6 runs finished, 1 running, 1 failed"
    assert narrow[1].split() == ["method", "seed", "state", "updates", "return_mean"], "the score is what one looks for"
    assert narrow[7].split() == ["BC", "0", "finished", "400", "-950.5"]


def test_what_is_left_is_told_from_what_methods_have_shown(tmp_path: Path) -> None:
    plan = planned(tmp_path, 1)
    fast, slow, other = (standing(plan, number) for number in range(3))
    assert seconds_left([fast, slow, other], 1) != seconds_left([fast, slow, other], 1), "NaN: nobody knows"
    fast.state, fast.updates, fast.rate = "finished", 400, 100.0
    slow.state, slow.updates, slow.rate = "running", 200, 10.0
    assert seconds_left([fast, slow, other], 1) == pytest.approx(200 / 10 + 400 / 55)
    assert seconds_left([fast, slow, other], 2) == pytest.approx(20), "no less than the longest run"
    assert usual_jobs(plan) == cores()
    given = small_suite()
    wide = {**given, "settings": {**given["settings"], "threads": cores()}}
    assert usual_jobs(make_plan(Suite.parse(wide), Narrowing(out=tmp_path))) == 1
