"""The unit of work: begun, gone on with, left alone; and what it says where that cannot be."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from short_runs import config_text, config_words, run_content, written_with

from understudy.run.config import load_config
from understudy.run.rundir import RunDir
from understudy.tools.experiments.on_ray import resources
from understudy.tools.experiments.on_slurm import threads_of
from understudy.tools.experiments.work import Outcome, order_of, train_or_resume


@pytest.fixture(autouse=True)
def _no_plots(no_plots: None) -> None:
    pass


def done(directory: Path, config: str) -> Outcome:
    return Outcome.from_json(train_or_resume(str(directory), config))


def killed_when_saved(run: Path, config: str) -> None:
    """Work in a process of its own that is killed at its first checkpoint."""
    process = os.fork()
    if process == 0:
        try:
            train_or_resume(str(run), config)
        finally:
            os._exit(0)
    while not (run / "checkpoints" / "latest").exists():
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def test_work_that_was_killed_goes_on_to_the_same_bits_and_finished_work_is_left_alone(tmp_path: Path) -> None:
    config = config_text()
    assert done(tmp_path / "whole", config) == Outcome("finished")
    killed_when_saved(tmp_path / "killed", config)
    assert not RunDir(tmp_path / "killed").finished
    assert done(tmp_path / "killed", config) == Outcome("finished")
    before = run_content(tmp_path / "killed")
    assert before == run_content(tmp_path / "whole")
    (tmp_path / "killed" / "timing.jsonl").unlink()
    assert done(tmp_path / "killed", config) == Outcome("finished")
    assert not (tmp_path / "killed" / "timing.jsonl").exists()


def test_a_directory_with_another_run_is_refused_with_every_difference_and_left_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert done(run, config_text(updates=20)).outcome == "finished"
    before = run_content(run)
    other = done(run, config_text(updates=40, seed=3))
    assert (other.outcome, other.retry) == ("failed", False)
    assert "begun with other settings: seed is 0 there and 3 here; updates is 20 there and 40 here" in other.reason
    assert run_content(run) == before


def test_work_that_another_process_does_is_busy_and_impossible_work_is_not_to_be_tried_again(tmp_path: Path) -> None:
    with RunDir(tmp_path / "run").locked():
        busy = done(tmp_path / "run", config_text())
    assert (busy.outcome, busy.retry) == ("busy", True)
    assert "is writing it" in busy.reason
    for config, reason in (
        (config_text().replace("batch_size:", "batch_sise:"), "source.batch_sise: no such setting. Did you mean"),
        (config_text(data__path="nowhere.npz", data__recipe="null"), "nowhere.npz"),
        ("[", "not readable as YAML"),
        ("- 1", "not a config"),
    ):
        failed = done(tmp_path / "wrong", config)
        assert (failed.outcome, failed.retry) == ("failed", False)
        assert reason in failed.reason
    assert not (tmp_path / "wrong").exists()


def test_work_that_other_versions_began_goes_on_only_if_the_order_says_so(tmp_path: Path) -> None:
    config = load_config("bc/pendulum", config_words(updates=200))
    assert done(tmp_path / "whole", order_of(config)) == Outcome("finished")
    run = tmp_path / "run"
    killed_when_saved(run, order_of(config))
    written_with(run, "torch", "1.0.0")
    refused = done(run, order_of(config))
    assert (refused.outcome, "other versions (torch 1.0.0 → " in refused.reason) == ("failed", True)
    assert done(run, order_of(config, accept_versions=True)) == Outcome("finished")
    assert run_content(run) == run_content(tmp_path / "whole")
    wrong = done(run, f"accept_versions: perhaps\n{config.to_yaml()}")
    assert (wrong.retry, wrong.reason) == (False, "accept_versions: neither True nor False: got 'perhaps'.")
    assert (resources(order_of(config, accept_versions=True)), threads_of(order_of(config, accept_versions=True))) == (
        {"num_cpus": 1, "num_gpus": 0},
        1,
    )


@pytest.mark.slow
def test_the_command_reads_the_run_and_prints_what_came_of_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "understudy", "work", str(tmp_path / "run")]
    ran = subprocess.run(command, input=config_text(updates=2), capture_output=True, text=True, check=True)
    assert Outcome.from_json(ran.stdout) == Outcome("finished")
    assert RunDir(tmp_path / "run").finished
