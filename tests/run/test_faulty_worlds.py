"""Environments that fail in real runs: one sentence, everything learned so far saved, and a resume that is exact."""

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from faulty_worlds import armed
from forks import Ending, finish, forks
from small import content, short_config

from understudy.run.checkpoint import list_checkpoints, load_checkpoint

RARE: dict[str, Any] = {"updates": 5, "log_every": 1, "eval_every": 4, "save_every": 100}
"""Nothing is saved before the end, unless there is a reason."""
ASKED = r"Environment 0: seed \d+, episode 2, step 7, action \[[-.\d]+\]\.\n"


def broken(folder: Path, fault: str, **changes: Any) -> tuple[Path, Ending]:
    """The config of a run whose environment is broken, and how the run ended."""
    config = short_config(folder, "ppo", env={"id": f"Faulty/{fault}-v0"}, **{**RARE, **changes})
    armed(str(config)).touch()
    ending = forks().run("train", config, "--quiet", no_plots=True)
    armed(str(config)).unlink()
    return config, ending


def check_mended(config: Path, fault: str, **changes: Any) -> None:
    """The run goes on when the environment is mended, and ends as one in which it was never broken."""
    folder = config.parent
    finish(config, folder / "run", no_plots=True)
    whole = short_config(folder, "ppo", "whole", env={"id": f"Faulty/{fault}-v0"}, **{**RARE, **changes})
    finish(whole, folder / "whole", no_plots=True)
    assert content(folder / "run") == content(folder / "whole")


FAILURES = {
    "exit": r"environment 0 failed in its step \(SystemExit: 7, at \S+faulty_worlds\.py:\d+\)\. ",
    "interrupt": r"environment 0 failed in its step \(KeyboardInterrupt, at \S+faulty_worlds\.py:\d+\)\. ",
    "alarm": r"an alarm rang that nobody waits for \(SIGALRM\)\. Environments that use signal\.alarm .* again\. ",
}


@pytest.mark.parametrize("fault", FAILURES)
def test_a_failure_is_one_sentence_and_everything_learned_is_kept(fault: str, tmp_path: Path) -> None:
    config, ending = broken(tmp_path, fault)
    assert ending.code == 1
    assert re.fullmatch(rf"environment 'Faulty/{fault}-v0': {FAILURES[fault]}{ASKED}", ending.err), ending.err
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [2]
    if fault == "exit":
        check_mended(config, fault)


@pytest.mark.parametrize(("fault", "code"), [("leave", 7), ("crash", -signal.SIGSEGV)])
def test_what_ends_the_process_leaves_a_run_that_goes_on(fault: str, code: int, tmp_path: Path) -> None:
    """From inside nothing can be done: what was saved is there. Native code that crashes at least tells where."""
    config, ending = broken(tmp_path, fault, save_every=1)
    assert ending.code == code
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [1, 2]
    if fault == "leave":
        check_mended(config, fault, save_every=1)
    else:
        assert re.search(r"Segmentation fault.*faulty_worlds\.py", ending.err, re.DOTALL)


@pytest.mark.parametrize(("fault", "how"), [("leave", "exit code 7"), ("crash", "SIGSEGV")])
def test_a_process_of_its_own_is_told_with_what_it_was_asked(fault: str, how: str, tmp_path: Path) -> None:
    source = {"num_envs": 2, "rollout_length": 7, "workers": 2}
    config = short_config(tmp_path, "ppo", env={"id": f"Faulty/{fault}-v0"}, source=source, **RARE)
    armed(str(config)).write_text("others")
    ending = forks().run("train", config, "--quiet", no_plots=True)
    last = ending.err.splitlines()[-1]
    told = rf"environment 'Faulty/{fault}-v0': the process of environment 1 is gone \({how}\)\. "
    assert re.fullmatch(told + r"Environment 1: seed \d+, episode 2, step 7, action \[[-.\d]+\]\.", last), ending.err
    assert ending.code == 1
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [2]


def replaying(folder: Path, fault: str, **source: Any) -> Path:
    """The config of a run with a replay buffer, in an environment that will be broken."""
    replay = {"kind": "replay", "num_envs": 2, "batch_size": 4, "learning_starts": 20, "buffer_size": 30, **source}
    algo = {"name": "sac", "actor": {"hidden": [8]}, "critic": {"hidden": [8]}}
    config = short_config(
        folder, "sac", env={"id": f"Faulty/{fault}-v0"}, **{**RARE, "algo": algo, "source": replay, "updates": 40}
    )
    without = json.loads(config.read_text())
    without.pop("data", None)
    config.write_text(json.dumps(without))
    return config


@pytest.mark.parametrize(("fault", "workers"), [("exit", 1), ("alarm", 1), ("leave", 2), ("crash", 2)])
def test_a_replay_buffer_outlives_its_environments(fault: str, workers: int, tmp_path: Path) -> None:
    """What failed is told with what it was asked, everything learned and kept is saved, and new episodes begin."""
    config = replaying(tmp_path, fault, workers=workers)
    armed(str(config)).write_text("others" if workers > 1 else "")
    ending = forks().run("train", config, "--quiet", no_plots=True)
    armed(str(config)).unlink()
    number = workers - 1
    asked = rf"Environment {number}: seed \d+, episode 2, step 7, action \[[-.\d]+\]\."
    how = FAILURES[fault] if workers == 1 else rf"the process of environment {number} is gone \(.*\)\. "
    assert re.search(rf"environment 'Faulty/{fault}-v0': {how}{asked}\n", ending.err), ending.err
    assert ending.code == 1
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [12], "20 of its 32 steps came before the first update"
    again = forks().run("resume", tmp_path / "run", no_plots=True)
    assert again.code == 0, again.err
    assert "new episodes begin" in again.out + again.err
    state = load_checkpoint(tmp_path / "run" / "checkpoints", 40).state
    assert state["source.ring.barriers"] == 2
    assert state["source.cut"] is False


@pytest.mark.parametrize(("updates", "number"), [(12, signal.SIGINT), (3, signal.SIGTERM)])
def test_an_evaluation_is_stopped_between_two_steps_and_played_again(updates: int, number: int, tmp_path: Path) -> None:
    """Also the last one, after which there is nothing left to learn. Played to its end it would take six seconds."""
    run = tmp_path / "run"
    words: dict[str, Any] = {"updates": updates, "save_every": 100, "env": {"id": "Faulty/slow-v0"}}
    config = short_config(tmp_path, **words)
    armed(str(config)).touch()
    child = forks().start("train", config, "--quiet", no_plots=True)
    until = time.monotonic() + 60
    while not armed(str(config)).stat().st_size:
        assert time.monotonic() < until
        time.sleep(0.005)
    began = time.monotonic()
    child.kill(number)
    ending = child.wait()
    assert time.monotonic() - began < 3
    assert ending.code == 128 + number
    assert ending.err == f"run '{run}': stopped and saved at update 3. Go on with: understudy resume {run}\n"
    assert (run / "eval.jsonl").read_text() == ""
    armed(str(config)).unlink()
    finish(config, run, no_plots=True)
    finish(short_config(tmp_path, name="whole", **words), tmp_path / "whole", no_plots=True)
    assert content(run) == content(tmp_path / "whole")
