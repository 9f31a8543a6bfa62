"""A search that is killed with SIGKILL, again and again, comes to the end of one that was not."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from levels import SPACE, TINY

import understudy as us
from processes import all_gone
from understudy.run.rundir import RunDir
from understudy.tools.tuning.outcome import Tuning
from understudy.tools.tuning.study import Study
from worlds import tiny_settings

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")

PENDULUM = {"algo.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "algo.actor.hidden": [[8], [16]]}
KILLED = "its process ended with SIGKILL. Was there too little memory?"
BEATS: dict[str, Any] = {"updates": 400, "log_every": 100, "eval_every": 200, "save_every": 20}


@pytest.fixture(autouse=True)
def _no_plots(no_plots: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for draw in ("draw_history", "draw_slices"):
        monkeypatch.setattr(f"understudy.tools.tuning.outcome.{draw}", lambda *told: told[-1])


def searched(out: Path, config: Any, space: Any, **wishes: Any) -> Tuning:
    return us.tune(config, space, out=out, top=1, fresh=2, progress=False, **wishes)


def forked(out: Path, config: Any, space: Any, **wishes: Any) -> int:
    """A search in a process of its own."""
    process = os.fork()
    if process == 0:
        try:
            searched(out, config, space, **wishes)
        finally:
            os._exit(0)
    return process


def ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] != 0


def essence(made: Tuning) -> list[Any]:
    """What was drawn and what came of it; not how long it took."""
    trials = [(row.number, row.state, dict(row.settings), row.value, dict(row.seeds)) for row in made.trials]
    return [trials, [(one.candidate, one.values) for one in made.confirmed], made.verdict]


def test_one_that_is_killed_in_each_of_its_trials_ends_as_one_that_is_not(tmp_path: Path) -> None:
    whole, out = searched(tmp_path / "whole", TINY, SPACE, trials=3), tmp_path / "out"
    for number in range(3):
        process = forked(out, TINY, SPACE, trials=3)
        while not list((out / "trials" / str(number)).glob("*/checkpoints/latest")):
            time.sleep(0.001)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    made = searched(out, TINY, SPACE, trials=3)
    assert essence(made) == essence(whole)
    assert not [failure for row in made.trials for failure in row.failures]


@pytest.mark.slow
def test_one_that_is_killed_at_any_time_ends_as_one_that_is_not(tmp_path: Path) -> None:
    config = tiny_settings("bc", tmp_path / "run", **BEATS)
    whole, out, rng = searched(tmp_path / "whole", config, PENDULUM, trials=4), tmp_path / "out", random.Random(0)
    whole_seconds = sum(row.seconds for row in whole.trials)
    kills = 0
    for _ in range(20):
        process = forked(out, config, PENDULUM, trials=4)
        time.sleep(rng.uniform(0.1, 0.5) * whole_seconds)
        if ended(process):
            break
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        kills += 1
    assert kills >= 2
    assert essence(searched(out, config, PENDULUM, trials=4)) == essence(whole)


def workers(process: int) -> list[int]:
    """The processes that it started."""
    tasks = Path("/proc", str(process), "task").glob("*/children")
    return [int(number) for task in tasks for number in task.read_text().split()]


@pytest.mark.slow
def test_one_with_several_processes_survives_the_death_of_all_and_of_one(tmp_path: Path) -> None:
    config, out = tiny_settings("bc", tmp_path / "run", **BEATS), tmp_path / "out"
    wishes: dict[str, Any] = {"trials": 4, "jobs": 2}

    def begun(count: int) -> bool:
        return len(list(out.glob("trials/*/*/checkpoints/latest"))) >= count

    process = forked(out, config, PENDULUM, **wishes)
    while not begun(2):
        time.sleep(0.01)
    started = workers(process)
    assert len(started) == 2
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert all_gone(started, 60)  # they end, saved, with who started them

    process = forked(out, config, PENDULUM, **wishes)
    while not begun(3):
        time.sleep(0.01)
    os.kill(workers(process)[0], signal.SIGKILL)
    os.waitpid(process, 0)
    rows = Study.open(out).rows()
    assert [row.state for row in rows] == ["complete"] * 4
    assert {failure for row in rows for failure in row.failures} <= {KILLED}
    for row in rows:
        assert row.value == RunDir(out / "trials" / str(row.number) / "0").result["eval/return_mean"]
    assert len(list(out.glob("confirmed/*/*/result.json"))) == 4


@pytest.mark.slow
def test_a_signal_saves_what_several_processes_have_and_the_same_call_goes_on(tmp_path: Path) -> None:
    config, out = tiny_settings("bc", tmp_path / "run", **BEATS), tmp_path / "out"
    process = forked(out, config, PENDULUM, trials=4, jobs=2)
    while len(list(out.glob("trials/*/*/checkpoints/latest"))) < 2:
        time.sleep(0.01)
    started = workers(process)
    os.kill(process, signal.SIGINT)
    os.waitpid(process, 0)
    assert all_gone(started, 1)
    assert {RunDir(run).state for run in out.glob("trials/*/0")} <= {"stopped", "finished"}
    assert [row.state for row in searched(out, config, PENDULUM, trials=4).trials] == ["complete"] * 4
