"""One process per run directory; finished and unfinished runs are told apart; extensions say what they do."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

from forks import Child, finish, forks
from small import content, short_config

FOREVER = 10**9


def wait_for(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def endless_run(folder: Path) -> Child:
    """A process that trains and has saved at least once."""
    child = forks().start("train", short_config(folder, updates=FOREVER, eval_every=FOREVER), "--quiet")
    wait_for((folder / "run" / "checkpoints" / "latest").exists)
    return child


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = endless_run(tmp_path)
    second = forks().run("resume", run)
    assert second.code == 1
    assert second.err == (
        f"run '{run}': another process (pid {first.pid}) is writing it. "
        "Wait for it, stop it, or choose another out=….\n"
    )
    first.kill(signal.SIGKILL)
    assert first.wait().code == -signal.SIGKILL
    third = forks().run("resume", run, stop_at=3)
    assert third.code == 128 + signal.SIGTERM
    assert "stopped and saved" in third.err


def test_two_births_in_one_directory(tmp_path: Path) -> None:
    """Both processes pass the first look at an empty directory; only one may go on."""
    config = short_config(tmp_path, updates=40)
    children = [forks().start("train", config, "--quiet", no_plots=True) for _ in range(3)]
    endings = [child.wait() for child in children]
    assert sorted(ending.code for ending in endings) == [0, 1, 1]
    for ending in endings:
        assert ending.code == 0 or "is writing it" in ending.err or "already holds" in ending.err
    alone = short_config(tmp_path, name="alone", updates=40)
    finish(alone, tmp_path / "alone", no_plots=True)
    assert content(tmp_path / "run") == content(tmp_path / "alone")


def test_train_refuses_what_is_there(tmp_path: Path) -> None:
    config, run = short_config(tmp_path), tmp_path / "run"
    forks().run("train", config, stop_at=5)
    unfinished = forks().run("train", config)
    assert unfinished.code == 1
    assert unfinished.err == (
        f"run '{run}': already holds an unfinished run. "
        f"Go on with: understudy resume {run} (or choose another out=…, or overwrite it).\n"
    )
    finish(config, run, no_plots=True)
    before = content(run)
    finished = forks().run("train", config)
    assert finished.code == 1
    assert finished.err == (
        f"run '{run}': already holds a finished run. "
        "Choose another out=…, or replace it: overwrite=True in Python, --overwrite on the command line.\n"
    )
    again = forks().run("resume", run)
    assert again.code == 1
    assert again.err == f"run '{run}': is finished. To train on, give more: understudy resume {run} updates=…\n"
    assert content(run) == before


def test_an_extension_says_what_it_does_to_schedules(tmp_path: Path) -> None:
    config, run = short_config(tmp_path), tmp_path / "run"
    finish(config, run, no_plots=True)
    metrics = (run / "metrics.jsonl").read_bytes()
    longer = forks().run("resume", run, "updates=20", no_plots=True)
    assert longer.code == 0, longer.err
    assert (
        "updates: 12 → 20. Schedules (a falling learning rate) follow the new horizon from update 12 on" in longer.err
    )
    assert json.loads((run / "result.json").read_text())["updates"] == 20
    assert (run / "metrics.jsonl").read_bytes().startswith(metrics)
    assert "updates: 20\n" in (run / "config.yaml").read_text()
    for steps in (20, 19, 0):
        refused = forks().run("resume", run, f"updates={steps}")
        assert refused.code != 0
        assert ("too small" if steps == 0 else "is finished" if steps == 20 else "not beyond what is") in refused.err


def test_an_extension_of_a_run_without_schedules_equals_the_long_run(tmp_path: Path) -> None:
    beats = {"log_every": 2, "eval_every": 4, "save_every": 4}
    short = short_config(tmp_path, "bc", "short", updates=8, **beats)
    long = short_config(tmp_path, "bc", "long", updates=16, **beats)
    finish(short, tmp_path / "short", no_plots=True)
    assert forks().run("resume", tmp_path / "short", "updates=16", no_plots=True).code == 0
    finish(long, tmp_path / "long", no_plots=True)
    assert content(tmp_path / "short") == content(tmp_path / "long")


def test_resume_of_what_is_no_run(tmp_path: Path) -> None:
    assert forks().run("resume", tmp_path / "x").err == f"run '{tmp_path / 'x'}': no such directory.\n"
    assert "not a run directory" in forks().run("resume", tmp_path).err
