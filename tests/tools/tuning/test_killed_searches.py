"""A search that is killed with SIGKILL, again and again, comes to the end of one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from processes import all_gone
from understudy.tools.tuning.outcome import FACTS
from understudy.tools.tuning.study import Study
from worlds import tiny_settings

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")
pytestmark = pytest.mark.slow

SPACE = {"algo.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "algo.actor.hidden": [[8], [16]]}
COMMAND = ["--trials", "5", "--top", "1", "--fresh", "2"]
BEATS: dict[str, Any] = {"updates": 3000, "log_every": 500, "eval_every": 1000, "save_every": 100}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A search of some seconds."""
    settings = tiny_settings("bc", tmp_path / "run", **BEATS)
    del settings["out"]
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    (tmp_path / "space.yaml").write_text(json.dumps(SPACE))
    return [str(tmp_path / "config.yaml"), str(tmp_path / "space.yaml"), *COMMAND]


def begun(words: list[str], out: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "understudy", "tune", *words, "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(words: list[str], out: Path, *more: str) -> str:
    process = begun(words, out, *more)
    said, complaint = process.communicate(timeout=900)
    assert process.returncode == 0, complaint
    return said


def workers(process: int) -> list[int]:
    """The processes that it started."""
    tasks = Path("/proc", str(process), "task").glob("*/children")
    return [int(number) for task in tasks for number in task.read_text().split()]


def essence(out: Path) -> dict[str, Any]:
    """What was drawn and what came of it; not how long it took, nor which attempts failed."""
    facts = json.loads((out / FACTS).read_text())
    for trial in facts["trials"]:
        del trial["seconds"], trial["failures"]
    return {key: facts[key] for key in ("trials", "confirmed", "best", "verdict")}


def begun_trials(out: Path) -> int:
    return len(list((out / "trials").glob("*/*/checkpoints/latest"))) + len(
        list((out / "confirmed").glob("*/*/eval.jsonl"))
    )


def test_one_that_is_killed_at_any_time_ends_as_one_that_is_not(words: list[str], tmp_path: Path) -> None:
    whole, out, rng = tmp_path / "whole", tmp_path / "out", random.Random(0)
    finished(words, whole)
    kills = 0
    while kills < 6:
        process, before = begun(words, out), begun_trials(out)
        while process.poll() is None and begun_trials(out) <= before:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.5)
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
    assert kills >= 3
    finished(words, out)
    assert essence(out) == essence(whole)
    assert not [failure for row in Study.open(out).rows() for failure in row.failures]


def test_one_with_several_processes_survives_the_death_of_all_and_of_one(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begun(words, out, "--jobs", "2")
    while begun_trials(out) < 2:
        time.sleep(0.01)
    started = workers(process.pid)
    assert len(started) == 2
    process.kill()
    process.communicate()
    assert all_gone(started, 30)  # they end, saved, with who started them

    process = begun(words, out, "--jobs", "2")
    while begun_trials(out) < 3:
        time.sleep(0.01)
    victim = workers(process.pid)[0]
    os.kill(victim, signal.SIGKILL)
    said, complaint = process.communicate(timeout=900)
    assert process.returncode == 0, complaint
    rows = Study.open(out).rows()
    assert [row.state for row in rows] == ["complete"] * 5
    failures = [failure for row in rows for failure in row.failures]
    assert set(failures) <= {"its process ended by signal 9 (SIGKILL)"}
    for row in rows:
        results = [json.loads((out / "trials" / str(row.number) / "0" / "result.json").read_text())]
        assert row.value == results[0]["eval/return_mean"]
    assert "fresh seeds" in said


def test_ctrl_c_saves_what_the_processes_have_and_says_the_way_on(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begun(words, out, "--jobs", "2")
    while begun_trials(out) < 2:
        time.sleep(0.01)
    started = workers(process.pid)
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == ""
    assert complaint.splitlines()[-1] == f"tuning of '{words[0]}': stopped. The same command goes on."
    assert "Traceback" not in complaint
    assert all_gone(started, 1)
    assert {row.state for row in Study.open(out).rows()} <= {"running", "complete", "pruned"}
    assert "fresh seeds" in finished(words, out)
