"""Ctrl-C and SIGTERM: saved, one sentence with the command that goes on, a defined exit code."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from forks import finish, forks
from small import content, short_config

from understudy.run.checkpoint import list_checkpoints

JOB: dict[str, Any] = {"steps": 150, "log_every": 5, "eval_every": 50, "save_every": 40}
STOPS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", STOPS)
def test_stop_save_and_go_on(number: signal.Signals, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = short_config(tmp_path, **JOB)
    child = forks().start("train", config, "--quiet", no_plots=True)
    deadline = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    child.kill(number)
    ending = child.wait()
    saved = list_checkpoints(run / "checkpoints")[-1]
    assert ending.code == 128 + number
    assert ending.err == f"run '{run}': stopped and saved at update {saved:,}. Go on with: understudy resume {run}\n"
    assert 0 < saved < 150

    finish(config, run, no_plots=True)
    finish(short_config(tmp_path, name="whole", **JOB), tmp_path / "whole", no_plots=True)
    assert content(run) == content(tmp_path / "whole")


@pytest.mark.parametrize("number", STOPS)
def test_a_stop_during_the_last_update(number: signal.Signals, tmp_path: Path) -> None:
    config = short_config(tmp_path)
    assert forks().run("train", config, stop_at=12, stop_signal=number).code == 128 + number
    assert not (tmp_path / "run" / "result.json").exists()
    finish(config, tmp_path / "run", no_plots=True)
    finish(short_config(tmp_path, name="whole"), tmp_path / "whole", no_plots=True)
    assert content(tmp_path / "run") == content(tmp_path / "whole")


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.2])
def test_ctrl_c_at_any_time_leaves_no_traceback(wait: float, tmp_path: Path) -> None:
    child = forks().start("train", short_config(tmp_path, steps=10**6), "--quiet")
    time.sleep(wait)
    child.kill(signal.SIGINT)
    ending = child.wait()
    assert ending.code in (130, -signal.SIGINT)
    assert "Traceback" not in ending.err
