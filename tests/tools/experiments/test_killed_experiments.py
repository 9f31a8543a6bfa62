"""Whatever kills the manager and its workers, the same command goes on to the same results."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from short_runs import SHORT, run_content

from processes import all_gone
from understudy.core.lock import is_locked
from understudy.run.progress import SILENT
from understudy.run.rundir import RunDir
from understudy.run.suites import load_suite
from understudy.tools.experiments.launcher import LocalLauncher
from understudy.tools.experiments.manager import Manager, Standing
from understudy.tools.experiments.plan import Narrowing, Plan, make_plan
from understudy.tools.experiments.work import Outcome, train_or_resume

SUITE: dict[str, Any] = {
    "name": "small",
    "about": "Two short ways to clone.",
    "tasks": [
        {
            "id": "swing",
            "env": "Pendulum-v1",
            "recipe": {"env": "Pendulum-v1", "episodes": 4, "seed": 1, "behaviours": [{"policy": "random"}]},
        }
    ],
    "methods": {"BC": "bc/pendulum", "10 % BC": {"config": "bc/pendulum", "settings": {"data.best_episodes": 0.5}}},
    "seeds": 2,
}
SETTINGS: dict[str, Any] = {key: value for key, value in SHORT.items() if not key.startswith("data.")}
RUNS = [f"{method}/swing/{seed}" for method in ("BC", "10-BC") for seed in (0, 1)]


def write_suite(folder: Path, **settings: int) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SUITE, "settings": {**SETTINGS, **settings}}, sort_keys=False))
    return path


def started(suite: Path, out: Path) -> subprocess.Popen[str]:
    """`understudy bench` as a process, which says little."""
    command = [sys.executable, "-m", "understudy", "bench", str(suite), "--out", str(out), "--jobs", "2", "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(suite: Path, out: Path) -> str:
    process = started(suite, out)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    return said


def offspring(process: int) -> Iterator[int]:
    """A process and all that it started, itself last."""
    for task in Path("/proc", str(process), "task").glob("*/children"):
        for child in task.read_text().split():
            yield from offspring(int(child))
    yield process


def works_for_host(process: int) -> bool:
    """It has not ended, and its parent is the host and not another worker, which is called as its host is: what
    a worker asks (git, for one) can be killed without its noticing."""
    with suppress(FileNotFoundError, ProcessLookupError):
        state, parent = status_of(process)
        return state != "Z" and called_host(parent) and not called_host(status_of(parent)[1])
    return False


def status_of(process: int) -> tuple[str, int]:
    """How it is, and who started it."""
    state, parent = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def called_host(process: int) -> bool:
    return b"experiments.host" in Path("/proc", str(process), "cmdline").read_bytes()


def contents(out: Path) -> dict[str, dict[str, str]]:
    return {name: run_content(out / name) for name in RUNS}


def check_kills(folder: Path, kills: int) -> None:
    """Manager, host and workers are killed at random until it was so often; what ends in the end is what ends
    undisturbed."""
    suite = write_suite(folder, updates=3000, eval_every=1000, log_every=100, save_every=100)
    table = finish(suite, folder / "whole")
    chance, done = random.Random(18), 0
    out, process = folder / "killed-0", None
    while done < kills:
        process = process or started(suite, out)
        wait_for_workers(process)
        time.sleep(chance.uniform(0, 1))
        if process.poll() is not None:
            if all((out / name / "result.json").exists() for name in RUNS):
                out = folder / f"killed-{done}"
            process = None
            continue
        with suppress(ProcessLookupError):
            os.kill(chance.choice(list(offspring(process.pid))), signal.SIGKILL)
            done += 1
    if process is not None:
        process.kill()
        process.communicate()
    assert finish(suite, out) == table.replace(str(folder / "whole"), str(out))
    for path in folder.glob("killed-*"):
        assert contents(path) == contents(folder / "whole")
        assert not is_locked(path)


def wait_for_workers(process: subprocess.Popen[str]) -> None:
    """Imports take long, and nobody could disturb them."""
    until = time.monotonic() + 60
    while process.poll() is None and len(list(offspring(process.pid))) < 3 and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.slow
def test_20_kills_of_manager_and_workers_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 20)


@pytest.mark.slow
def test_workers_that_are_killed_are_replaced_and_the_reason_is_kept(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, updates=4000, save_every=100)
    killed: set[int] = set()

    @contextmanager
    def kill_two(plan: Plan, standings: Sequence[Standing]) -> Iterator[Callable[[], None]]:
        def watch() -> None:
            for worker in list(offspring(os.getpid())):
                updates = [standing.updates for standing in standings if standing.state == "running"]
                midway = any(updates) and max(updates) < 2000  # nobody is about to end by itself
                if midway and len(killed) < 2 and worker not in killed and works_for_host(worker):
                    killed.add(worker)
                    os.kill(worker, signal.SIGKILL)

        yield watch

    plan = make_plan(load_suite(str(suite)), Narrowing(out=tmp_path / "killed"))
    standings = Manager(plan, LocalLauncher(), 2, SILENT, kill_two).run()
    assert [standing.state for standing in standings] == ["finished"] * 4
    assert len(killed) == 2
    lines = [json.loads(line) for line in (tmp_path / "killed" / "bench.jsonl").read_text().splitlines()]
    assert sum(line["outcome"] == "finished" for line in lines) == 4
    reasons = [line["reason"] for line in lines if line["outcome"] == "failed"]
    assert reasons == ["its process ended with SIGKILL. Was there too little memory?"] * 2
    for planned in plan.runs:
        whole = tmp_path / "whole" / planned.directory.name
        assert Outcome.from_json(train_or_resume(str(whole), planned.config.to_yaml())).outcome == "finished"
        assert run_content(whole) == run_content(planned.directory)
        break


@pytest.mark.slow
def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, updates=100_000, save_every=100_000, eval_every=100_000)
    process = started(suite, tmp_path / "out")
    wait_for_workers(process)
    logs = [tmp_path / "out" / name / "metrics.jsonl" for name in RUNS]
    while sum(log.exists() and log.stat().st_size > 0 for log in logs) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    family = list(offspring(process.pid))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert "stopped. 0 of 4 runs finished, the others are saved as far as they came. The same command goes on." in said
    assert all_gone(family)
    saved = [name for name in RUNS if (tmp_path / "out" / name / "checkpoints" / "latest").exists()]
    assert len(saved) == 2
    for name in saved:
        assert RunDir(tmp_path / "out" / name).state == "stopped"
