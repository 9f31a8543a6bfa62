"""Weights & Biases gets the numbers of the logs, run for run, and never gets in the way."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from small import content, short_config, short_settings
from wandb_files import commit, history, offline_runs, preflight

import understudy as us
from understudy.core.errors import ConfigError, MissingPackageError
from understudy.core.files import read_json
from understudy.run.config import RunConfig, parse_config
from understudy.run.identity import config_digest
from understudy.run.wandb_sink import WandbSink

pytestmark = pytest.mark.usefixtures("no_plots")

ALGORITHMS = ("iql", "ppo")
TRAIN = """
import os, signal, sys
import small  # its worlds become known
import understudy as us
from understudy.run.progress import Reporter
def watch(updates, evaluation):
    if [str(updates)] == sys.argv[2:]:
        os.kill(os.getpid(), signal.SIGKILL)
us.train(sys.argv[1], reporter=Reporter(), callbacks=[watch])
"""
"""Train a config in a process of its own; with a second word it kills itself at that update's evaluation."""


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B, installed and told to call nobody."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    pytest.importorskip("wandb", reason="wandb is not installed: pip install 'understudy-rl[wandb]'")


def short(algorithm: str, out: Path, **changes: Any) -> RunConfig:
    return parse_config(short_settings(algorithm, out, **changes))


def logged(run: us.Run) -> dict[int, dict[str, float]]:
    """What TensorBoard shows, by update: all metrics, and the scalars of evaluations."""
    rows: dict[int, dict[str, float]] = {}
    for line in run.metrics():
        rows.setdefault(line["updates"], {}).update({name: line[name] for name in line if name != "updates"})
    for line in run.evaluations():
        rows.setdefault(line["updates"], {}).update({name: line[name] for name in line if name.startswith("eval/")})
    return rows


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_number_arrives_and_none_changes(algorithm: str, tmp_path: Path) -> None:
    run = us.train(short(algorithm, tmp_path / "with" / "run", wandb="house"))
    (file,) = offline_runs(run.path)
    rows = history(file)
    assert dict(rows) == logged(run)
    assert [step for step, _ in rows] == [2, 3, 4, 6, 8, 9, 10, 12]
    identity = read_json(run.path / "wandb.json")["id"]
    name = "/".join(run.path.parts[-3:])
    assert preflight(file) == (identity, "house", name, run.config.model_dump(mode="json"))

    without = us.train(short(algorithm, tmp_path / "without" / "run"))
    assert content(run.path) == content(without.path)
    assert not (without.path / "wandb").exists()
    assert not (without.path / "wandb.json").exists()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_resumed_run_goes_on_in_the_same_wandb_run(algorithm: str, tmp_path: Path) -> None:
    us.train(short(algorithm, tmp_path / "run", wandb="house"), callbacks=[lambda updates, evaluation: updates == 6])
    run = us.resume(tmp_path / "run")
    before, after = sorted(offline_runs(run.path), key=lambda file: history(file)[0])
    assert preflight(before)[:3] == preflight(after)[:3]
    assert [step for step, _ in history(before)] == [2, 3, 4, 6]
    assert [step for step, _ in history(after)] == [8, 9, 10, 12]
    assert dict(history(before) + history(after)) == logged(run)


@pytest.mark.usefixtures("offline")
def test_after_a_kill_the_same_wandb_run_gets_all_that_comes(tmp_path: Path) -> None:
    """What W&B's own process had not written yet dies with ours; from the checkpoint on nothing is missing."""
    config = short_config(tmp_path, "ppo", wandb="house")
    words = [sys.executable, "-c", TRAIN, str(config), "9"]
    killed = subprocess.run(words, env=_environment(tmp_path, WANDB_MODE="offline"), check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (before,) = offline_runs(tmp_path / "run")
    identity = read_json(tmp_path / "run" / "wandb.json")["id"]
    run = us.resume(tmp_path / "run")  # from the checkpoint at 8
    (after,) = set(offline_runs(run.path)) - {before}
    assert before.name == after.name == f"run-{identity}.wandb"
    assert dict(history(after)) == {updates: row for updates, row in logged(run).items() if updates > 8}


@pytest.mark.usefixtures("offline")
def test_wandb_knows_the_commit_and_runs_nothing_that_the_repository_names(tmp_path: Path) -> None:
    folder, marker, evil = tmp_path / "repository", tmp_path / "marker", tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    evil.chmod(0o755)
    config = short_config(folder, "bc", wandb="house", updates=2)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "begin"],
        ["remote", "add", "origin", "ssh://nowhere.invalid/x"],
        ["update-ref", "refs/remotes/origin/main", "HEAD"],
        ["branch", "-q", "--set-upstream-to=origin/main"],
        ["config", "core.fsmonitor", str(evil)],
        ["config", "diff.external", str(evil)],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    marker.unlink(missing_ok=True)
    environment = _environment(tmp_path, WANDB_MODE="offline", WANDB_SAVE_CODE="true")
    subprocess.run([sys.executable, "-c", TRAIN, str(config)], env=environment, cwd=folder, check=True)
    assert not marker.exists()
    (file,) = offline_runs(folder / "run")
    assert commit(file) == read_json(folder / "run" / "meta.json")["git"]["commit"] != ""


@pytest.mark.usefixtures("offline")
def test_who_is_not_logged_in_trains_offline_and_is_told(tmp_path: Path) -> None:
    config = short_config(tmp_path, "ppo", wandb="house")
    words = [sys.executable, "-c", TRAIN, str(config)]
    done = subprocess.run(words, env=_environment(tmp_path), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = us.Run(tmp_path / "run")
    identity = read_json(run.path / "wandb.json")["id"]
    later = f"send its numbers later: wandb sync --id {identity} {run.path}/wandb/offline-run-*"
    assert f"W&B cannot be reached (nobody is logged in: wandb login); {later}" in done.stderr
    (file,) = offline_runs(run.path)
    assert dict(history(file)) == logged(run)


def _environment(home: Path, **settings: str) -> dict[str, str]:
    """Of somebody whom W&B does not know."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "NETRC"))}
    return {**kept, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), **settings}


def test_a_run_that_dies_of_an_error_hands_over_its_last_row() -> None:
    """Whoever saves has handed it over before; an environment that breaks between two saves has not."""
    happened: list[Any] = []
    run = SimpleNamespace(
        log=lambda row, step, commit: happened.append((step, row, commit)), finish=lambda: happened.append("finished")
    )
    sink = WandbSink(run, happened.append)
    sink.log(5, {"loss/actor": 1.0})
    sink.log(5, {"eval/return_mean": 2.0})
    assert happened == []
    sink.close()
    assert happened == [(5, {"loss/actor": 1.0, "eval/return_mean": 2.0}, True), "finished"]


def test_a_broken_line_to_wandb_is_told_once_and_ends_nothing() -> None:
    class Broken:
        rows = 0

        def log(self, row: dict[str, float], step: int, commit: bool) -> None:
            self.rows += 1
            if step > 1:
                raise BrokenPipeError("gone")

        def finish(self) -> None:
            raise AssertionError("nobody is there any more")

    said: list[str] = []
    run = Broken()
    sink = WandbSink(run, said.append)
    for updates in (1, 2, 3, 4):
        sink.log(updates, {"loss/actor": 1.0})
    sink.sync()
    sink.close()
    assert run.rows == 2
    assert said == ["W&B gets no more numbers (gone); the run goes on and keeps them in its own logs"]


def _absent(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)


def _only_a_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As Python sees a folder `wandb` in the working directory where the package is missing."""
    namespace = ModuleType("wandb")
    namespace.__path__ = [str(folder)]
    monkeypatch.setitem(sys.modules, "wandb", namespace)
    monkeypatch.delitem(sys.modules, "wandb.sdk", raising=False)


@pytest.mark.parametrize("missing", [_absent, _only_a_folder])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_missing_package_is_found_before_the_first_step(
    algorithm: str, missing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch, tmp_path)
    with pytest.raises(MissingPackageError, match=r"needs wandb .* Run: pip install 'understudy-rl\[wandb\]'"):
        us.train(short(algorithm, tmp_path / "run", wandb="house"))
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize("name", ["team/project", "what?", "a\nb", "x" * 129])
def test_a_name_that_no_project_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^wandb: "):
        short("bc", tmp_path / "run", wandb=name)


def test_it_is_no_part_of_a_runs_identity(tmp_path: Path) -> None:
    assert config_digest(short("bc", tmp_path / "a", wandb="house")) == config_digest(short("bc", tmp_path / "b"))
