"""Kill −9 at any moment, then resume: the run ends as if nothing had happened."""

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from event_files import scalars
from folders import fast_folder
from forks import Child, finish, forks, next_words
from small import SHORT, content, leftovers, short_config

LONGEST_LIFE = 0.6
JOB: dict[str, Any] = {
    "source": {"batch_size": 64},
    "env": {"id": SHORT},
    "updates": 600,
    "log_every": 10,
    "eval_every": 25,
    "save_every": 20,
    "keep_checkpoints": 2,
    "tensorboard": True,
}


def let_live(child: Child, seconds: float) -> bool:
    """Kill the child after a while; True if the signal was what ended it."""
    time.sleep(seconds)
    child.kill(signal.SIGKILL)
    return child.wait().code == -signal.SIGKILL


def kill_until(kills: int, folder: Path) -> list[Path]:
    """Runs that together died so many times, each resumed until it was finished."""
    delays = random.Random(20)
    runs: list[Path] = []
    while kills > 0:
        run = folder / f"killed{len(runs)}"
        config = short_config(folder, name=run.name, **JOB)
        while kills > 0 and not (run / "result.json").exists():
            kills -= let_live(forks().start(*next_words(config, run)), delays.uniform(0, LONGEST_LIFE))
        if not (run / "result.json").exists():
            finish(config, run)
        runs.append(run)
    return runs


def shown(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows, but for what the clock decides."""
    return {tag: points for tag, points in scalars(run / "tensorboard").items() if not tag.startswith("speed/")}


def check_kills(kills: int) -> None:
    with fast_folder() as folder:
        finish(short_config(folder, name="whole", **JOB), folder / "whole")
        for run in kill_until(kills, folder):
            assert content(run) == content(folder / "whole")
            assert shown(run) == shown(folder / "whole")
            assert leftovers(run) == []


def test_12_kills_at_random_moments() -> None:
    check_kills(12)


@pytest.mark.slow
def test_200_kills_at_random_moments() -> None:
    check_kills(200)
