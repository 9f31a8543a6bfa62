"""Ctrl-C and SIGTERM: saved, one sentence with the command that goes on, a defined exit code."""

import itertools
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from folders import fast_folder
from forks import Ending, finish, forks, next_words
from small import content, leftovers, short_config

from understudy.run.checkpoint import list_checkpoints

JOB: dict[str, Any] = {"updates": 150, "log_every": 5, "eval_every": 50, "save_every": 40}
STOPS = (signal.SIGINT, signal.SIGTERM)
AT_ONCE = 4


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
    child = forks().start("train", short_config(tmp_path, updates=10**6), "--quiet")
    time.sleep(wait)
    child.kill(signal.SIGINT)
    ending = child.wait()
    assert ending.code in (130, -signal.SIGINT)
    assert "Traceback" not in ending.err


def test_a_second_signal_at_any_moment_of_the_save() -> None:
    """It ends the command at once, with its exit code and a sentence, and the run goes on to the bit."""
    job: dict[str, Any] = {"updates": 10, "log_every": 5, "eval_every": 10, "save_every": 2, "keep_checkpoints": 2}
    with fast_folder() as folder:
        finish(short_config(folder, "bc", "whole", **job), folder / "whole", no_plots=True)
        whole = content(folder / "whole")
        for first in itertools.count(1, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            configs = {number: short_config(folder, "bc", f"run{number}", **job) for number in numbers}
            endings = _stop_twice(configs)
            children = [forks().start(*next_words(configs[n], folder / f"run{n}"), no_plots=True) for n in numbers]
            for number, child in zip(numbers, children, strict=True):
                run = folder / f"run{number}"
                said, code = endings[number].err, endings[number].code
                assert code == 128 + STOPS[number % 2], said
                assert said.startswith(f"run '{run}': stopped")
                assert said.endswith(f"Go on with: understudy resume {run}\n")
                assert len(said.splitlines()) == 1
                assert child.wait().code == 0
                assert content(run) == whole, f"second signal at change {number}"
                assert leftovers(run) == []
            if all("stopped and saved" in ending.err for ending in endings.values()):
                break
    assert first > 2 * AT_ONCE


def _stop_twice(configs: dict[int, Path]) -> dict[int, Ending]:
    """The second time before the n-th change of files after the first."""
    children = {
        number: forks().start(
            "train", config, "--quiet", no_plots=True, stop_at=7, stop_signal=STOPS[number % 2], hurry_at=number
        )
        for number, config in configs.items()
    }
    return {number: child.wait() for number, child in children.items()}
