"""A search whose workers are tasks of Ray: a real local cluster, one of whose workers is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

import understudy as us
from processes import all_gone
from understudy.core.errors import ConfigError, RunError
from understudy.run.rundir import RunDir
from understudy.tools.experiments.work import Outcome
from understudy.tools.tuning.on_ray import work_on_ray
from understudy.tools.tuning.outcome import Tuning
from understudy.tools.tuning.plan import Plan
from understudy.tools.tuning.study import Study
from understudy.tools.tuning.worker import Orders
from worlds import tiny_settings

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")
pytest.importorskip("ray", reason="the extra `ray` is not installed")

SPACE: dict[str, Any] = {
    "algo.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "algo.actor.hidden": [[8], [16]],
}
SHORT: dict[str, Any] = {"updates": 20, "log_every": 20, "eval_every": 20, "save_every": 20}
BEATS: dict[str, Any] = {"updates": 200, "log_every": 100, "eval_every": 100, "save_every": 20}
SECONDS = 120.0


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import what this process does."""
    ours = Path(__file__).parents[3] / "src"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ours), os.environ.get("PYTHONPATH", "")]))


def searched(out: Path, config: dict[str, Any], **wishes: Any) -> Tuning:
    return us.tune(config, SPACE, out=out, trials=2, top=1, fresh=1, progress=False, **wishes)


def below(process: int) -> list[int]:
    """A process and all that it started, and they."""
    found = [process]
    for one in found:
        found += [
            int(word) for tasks in Path(f"/proc/{one}/task").glob("*/children") for word in tasks.read_text().split()
        ]
    return found


def at_work(process: int) -> list[int]:
    return [one for one in below(process) if Path(f"/proc/{one}/cmdline").read_bytes().startswith(b"ray::work")]


def wait_for(path: Path) -> None:
    until = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.005)


@pytest.mark.slow
def test_a_search_whose_worker_is_killed_ends_as_it_would_have_here(tmp_path: Path, no_plots: None) -> None:
    config = tiny_settings("bc", tmp_path / "run", **BEATS)
    here = searched(tmp_path / "here", config)

    def kill_once() -> None:
        wait_for(tmp_path / "there" / "trials" / "1" / "0" / "checkpoints" / "latest")
        os.kill(at_work(os.getpid())[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_once)
    killer.start()
    there = searched(tmp_path / "there", config, on="ray", jobs=1)
    killer.join()
    lost = [failure for row in there.trials for failure in row.failures]
    assert len(lost) == 1
    assert "worker died" in lost[0]
    for mine, theirs in zip(here.trials, there.trials, strict=True):
        assert (mine.settings, mine.state, mine.value, mine.seeds) == (
            theirs.settings,
            theirs.state,
            theirs.value,
            theirs.seeds,
        )
    assert [(one.candidate, one.values) for one in here.confirmed] == [
        (one.candidate, one.values) for one in there.confirmed
    ]
    assert here.verdict == there.verdict
    runs = [path.parent.relative_to(here.path) for path in here.path.rglob("result.json")]
    assert len(runs) == 4
    for run in runs:
        for name in ("metrics.jsonl", "eval.jsonl", "result.json", "policy/final/policy.safetensors"):
            assert (here.path / run / name).read_bytes() == (there.path / run / name).read_bytes(), (run, name)
    assert not at_work(os.getpid())


@pytest.mark.slow
def test_ctrl_c_saves_what_workers_have_and_a_sentence_says_the_way_on(tmp_path: Path, no_plots: None) -> None:
    config, out = (
        tiny_settings("bc", tmp_path / "run", **{**BEATS, "updates": 2000, "eval_every": 1000}),
        tmp_path / "o",
    )
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE))
    words = ["tune", "config.yaml", "space.yaml", "--trials", "2", "--top", "0", "--out", "o", "--on", "ray"]
    with subprocess.Popen(
        [sys.executable, "-m", "understudy", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as command:
        for number in range(min(2, os.cpu_count() or 1)):  # as many workers as there are cores
            wait_for(out / "trials" / str(number) / "0" / "checkpoints" / "latest")
        started = below(command.pid)
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=SECONDS)
    assert command.returncode == 130
    assert told.splitlines()[-1] == "tuning 'o': stopped. The same command goes on."
    assert "Traceback" not in told
    assert all_gone(started, 30)
    assert {RunDir(run).state for run in out.glob("trials/*/0")} <= {"stopped", "finished"}
    rows = Study.open(out).rows()
    assert {row.state for row in rows} == {"running"}
    assert not [failure for row in rows for failure in row.failures]


def test_where_nobody_answers_nothing_is_begun(tmp_path: Path) -> None:
    config = tiny_settings("bc", tmp_path / "run", **SHORT)
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=f"--on ray: no cluster answers at '{address}'"):
            searched(tmp_path / "tune", config, on=f"ray={address}")
    for wrong in ("slurm", "here=x", "ray=", "rai"):
        with pytest.raises(ConfigError, match=f"--on: no place for a search: got '{wrong}'"):
            searched(tmp_path / "tune", config, on=wrong)
    assert not list(tmp_path.iterdir())


def test_a_task_is_three_strings_and_so_is_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_plots: None
) -> None:
    """What Ray calls, called here: it works off the search in a folder, or says why not."""
    monkeypatch.chdir(tmp_path)  # it goes elsewhere, and we come back
    plan = Plan.make(tiny_settings("bc", tmp_path / "run", **SHORT), SPACE, {})
    (tmp_path / "tune").mkdir()
    plan.write(tmp_path / "tune")
    orders = Orders(trials=2, top=0, fresh=1, retries=0, worker="me").words()
    assert json.loads(orders)["trials"] == 2
    assert Outcome.from_json(work_on_ray(str(tmp_path), "tune", orders)) == Outcome("finished")
    assert [row.state for row in Study.open(tmp_path / "tune").rows()] == ["complete"] * 2
    assert Outcome.from_json(work_on_ray(str(tmp_path), "tune", orders)) == Outcome("finished")
    lost = Outcome.from_json(work_on_ray(str(tmp_path), "nowhere", orders))
    assert lost.outcome == "failed"
    assert "nowhere/plan.json" in lost.reason
    away = Outcome.from_json(work_on_ray(str(tmp_path / "away"), "tune", orders))
    assert "all machines need one file system" in away.reason
