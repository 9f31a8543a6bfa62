"""Runs whose environments are shared out over processes: the same run, however many there are."""

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from forks import finish, forks
from small import SHORT, content, short_config, short_settings

import understudy as us
from processes import all_gone, children
from understudy.core.errors import ConfigError, RunError
from understudy.run.config import parse_config

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are counted in /proc"),
    pytest.mark.usefixtures("no_plots"),
]


def settings(out: Path, workers: int, **changes: Any) -> dict[str, Any]:
    return short_settings("ppo", out, source={"num_envs": 3, "rollout_length": 7, "workers": workers}, **changes)


def test_any_number_of_workers_gives_the_same_run(tmp_path: Path) -> None:
    """Logs, evaluations, policies and the whole state, to the byte."""
    told = []
    for workers in (1, 2, 3):
        run = us.train(parse_config(settings(tmp_path / str(workers), workers, env={"id": "UnderstudyWindyPoint-v0"})))
        assert run.metrics()[-1]["terms/reward_distance"] < 0
        told.append(content(run.path))
    assert told[0] == told[1] == told[2]
    assert children() == []


def test_a_run_goes_on_with_another_number(tmp_path: Path) -> None:
    whole = us.train(parse_config(settings(tmp_path / "whole", 1)))
    run = tmp_path / "run"
    us.train(parse_config(settings(run, 2)), callbacks=[lambda updates, _: updates == 6])
    file = run / "config.yaml"
    assert "workers: 2" in file.read_text()
    file.write_text(file.read_text().replace("workers: 2", "workers: 3"))
    us.resume(run)
    assert content(run) == content(whole.path)


def test_ctrl_c_reaches_everybody_and_the_run_is_saved(tmp_path: Path) -> None:
    """As a terminal sends it, to the run and its processes; then it goes on with one."""
    run = tmp_path / "run"
    words: dict[str, Any] = {"updates": 100, "log_every": 1, "eval_every": 50, "save_every": 40}
    config = short_config(tmp_path, "ppo", source={"num_envs": 3, "rollout_length": 7, "workers": 2}, **words)
    child = forks().start("train", config, "--quiet", no_plots=True)
    until = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert time.monotonic() < until
        time.sleep(0.002)
    processes = children(child.pid)
    assert len(processes) == 1
    for process in (*processes, child.pid):
        os.kill(process, signal.SIGINT)
    ending = child.wait()
    assert ending.code == 128 + signal.SIGINT
    assert re.fullmatch(rf"run '{run}': stopped and saved at update \d+\. Go on with: .*\n", ending.err)
    assert all_gone(processes)
    finish(config, run, no_plots=True)
    alone = short_config(tmp_path, "ppo", "whole", source={"num_envs": 3, "rollout_length": 7}, **words)
    finish(alone, tmp_path / "whole", no_plots=True)
    assert content(run) == content(tmp_path / "whole")


def test_a_killed_process_ends_the_run_and_the_run_is_kept(tmp_path: Path) -> None:
    def kill(updates: int, _: us.Evaluation) -> bool:
        os.kill(children()[0], signal.SIGKILL)
        return False

    with pytest.raises(RunError, match=r"the process of environments 1 to 2 is gone \(SIGKILL\)"):
        us.train(parse_config(settings(tmp_path / "run", 2, save_every=1)), callbacks=[kill])
    assert children() == []
    us.resume(tmp_path / "run")
    assert us.Run(tmp_path / "run").result["updates"] == 12


def test_a_killed_run_goes_on_at_once(tmp_path: Path) -> None:
    """Its processes hold nothing of it, not even one that cannot notice that it is alone; and they end with it."""
    run = tmp_path / "run"
    endless: dict[str, Any] = {"updates": 10**9, "eval_every": 10**9, "save_every": 1}
    config = short_config(tmp_path, "ppo", source={"num_envs": 3, "rollout_length": 7, "workers": 3}, **endless)
    child = forks().start("train", config, "--quiet")
    until = time.monotonic() + 60
    while not (run / "checkpoints" / "latest").exists():
        assert time.monotonic() < until
        time.sleep(0.002)
    processes = children(child.pid)
    assert len(processes) == 2
    os.kill(processes[0], signal.SIGSTOP)
    child.kill(signal.SIGKILL)
    child.wait()
    resumed = forks().run("resume", run, stop_at=3)
    assert (resumed.code, "stopped and saved" in resumed.err) == (128 + signal.SIGTERM, True), resumed.err
    assert all_gone(processes)


def test_what_cannot_be_shared_out_is_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"source\.workers: 4 for 3 environments: at most one for each"):
        parse_config(settings(tmp_path / "run", 4))
    with pytest.raises(ConfigError, match=r"source\.workers.*0.*greater than or equal to 1"):
        parse_config(settings(tmp_path / "run", 0))
    refused = (
        ({"workers": 2}, "workers", "custom: gymnasium.register yours"),
        ({"stagger_episodes": True}, "stagger_episodes", "envpool"),
    )
    for source, name, simulator in refused:
        told = short_settings("ppo", tmp_path, source=source, env={"id": SHORT, "simulator": simulator.split(":")[0]})
        with pytest.raises(
            ConfigError, match=rf"source\.{name}: is for environments of Gymnasium's registry, not .*{simulator}"
        ):
            parse_config(told)
