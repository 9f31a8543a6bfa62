"""Runs with a teacher: wherever it lies, killed and resumed, and what a student learns from one that sees more."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import understudy as us
from learners import differences
from understudy.core.errors import CheckpointError, ConfigError
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import load_config, parse_config, read_resolved
from worlds import tiny_settings

pytestmark = pytest.mark.usefixtures("no_plots")

GRU = {"hidden": [8], "memory": {"kind": "gru", "units": 4}}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    folder = tmp_path_factory.mktemp("teacher")
    words: dict[str, Any] = {"env": {"id": "Pendulum-v1"}, "source": {"num_envs": 3, "rollout_length": 8}}
    return us.train(parse_config({**tiny_settings("ppo", folder / "run", **words), "updates": 2}))


def student(out: Path, path: Path, objective: dict[str, Any] | None = None, **changes: Any) -> Any:
    """The settings of a student that does not see the velocity."""
    algo = {
        "name": "ppo",
        "epochs": 2,
        "minibatches": 2,
        "actor": {**GRU, "hide": {"state": [2]}},
        "critic": {"hidden": [8]},
        "objectives": {"teacher": {"beta": 0.5, **(objective or {})}},
        **changes.pop("algo", {}),
    }
    words = {"env": {"id": "Pendulum-v1"}, "source": {"num_envs": 3, "rollout_length": 7, "stagger_episodes": True}}
    settings = tiny_settings("ppo", out, algo=algo, **words, save_every=2, eval_every=6, eval_episodes=1)
    return parse_config({**settings, "policies": {"teacher": {"path": str(path)}}, "updates": 6, **changes})


def last_state(run: us.Run) -> Any:
    return load_checkpoint(run.path / "checkpoints", list_checkpoints(run.path / "checkpoints")[-1]).state


def test_a_teacher_is_a_run_a_policy_folder_or_an_exported_file(teacher: us.Run, tmp_path: Path) -> None:
    """And the run never goes on with another."""
    exported = us.export_policy(teacher, out=tmp_path / "exported").path
    lessons = {
        name: us.train(student(tmp_path / name, path))
        for name, path in (("run", teacher.path), ("folder", teacher.path / "policy" / "final"), ("file", exported))
    }
    states = {name: last_state(run) for name, run in lessons.items()}
    assert differences(states["run"], states["folder"]) == []
    for path, leaf in states["run"].items():
        if path.startswith("algorithm.policy.trunk"):
            torch.testing.assert_close(leaf, states["file"][path], rtol=1e-3, atol=1e-4)
    resolved = [read_resolved(run.path / "config.yaml") for run in lessons.values()]
    fingerprints = [config.policies["teacher"].fingerprint for config in resolved]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    other = us.export_policy(lessons["run"], out=tmp_path / "other").path
    shutil.copy(other, exported)
    with pytest.raises(CheckpointError, match=r"policies\.teacher '.*': holds another policy"):
        us.resume(lessons["file"].path, updates=8)
    with pytest.raises(
        ConfigError, match=r"teacher\.labels: teacher 'teacher' is an exported file, which has no draws"
    ):
        us.train(student(tmp_path / "drawn", exported, {"labels": "sample"}))
    with pytest.raises(CheckpointError, match=r"policies\.teacher\.path: policy '.*nowhere\.onnx': no such file"):
        us.train(student(tmp_path / "nobody", tmp_path / "nowhere.onnx"))


def test_a_resumed_run_with_a_teacher_is_the_uninterrupted_one(teacher: us.Run, tmp_path: Path) -> None:
    objective = {"labels": "sample", "buffer_dilation": 3, "hidden_state_resample_prob": 0.5, "loss": "nll"}
    states = []
    for name, halves in (("whole", False), ("halves", True)):
        config = student(tmp_path / name, teacher.path, objective, algo={"policy_coef": 0.0})
        run = us.train(config.model_copy(update={"updates": 3 if halves else 6}))
        if halves:
            us.resume(run.path, updates=6)
        states.append(last_state(run))
    assert differences(*states) == []
    assert {"source.turns.0.driven", "source.turns.0.draws", "source.turns.0.memories"} <= states[0].keys()
    assert states[0]["algorithm.objectives.members.teacher.updates"] == 6


def test_a_policy_that_is_taken_over_begins_with_the_deviation_that_is_said(teacher: us.Run, tmp_path: Path) -> None:
    """And only that changes; while the critic warms up it stays."""

    def policy(run: us.Run) -> Actor:
        found = us.load_policy(run.path)
        assert isinstance(found, Actor)
        return found

    def sigma(run: us.Run) -> list[float]:
        density = policy(run).distribution
        assert isinstance(density, Gaussian)
        found: list[float] = density.log_std.exp().tolist()
        return found

    first = us.train(student(tmp_path / "first", teacher.path, algo={"policy_coef": 0.0}))
    assert sigma(first) == [pytest.approx(1.0)]
    heir: dict[str, Any] = {"init_from": str(first.path), "algo": {"critic_warmup": 9}}
    told = {std: us.train(student(tmp_path / f"{std}", teacher.path, **heir, **std_of(std))) for std in (None, 0.2)}
    assert sigma(told[None]) == sigma(first)
    assert sigma(told[0.2]) == [pytest.approx(0.2)]
    trunks = [policy(run).trunk.flat for run in (*told.values(), first)]
    assert torch.equal(trunks[0], trunks[2])
    assert torch.equal(trunks[1], trunks[2])
    start: dict[str, Any] = {"init_from": str(first.path)}
    for std, distribution, message in (
        (1e-9, "gaussian", r"init_std: outside the limits of σ: got 1e-09, expected from 0\.001 to 10"),
        (0.2, "state_gaussian", r"its network is not that of algo\.actor \(distribution\)"),
    ):
        wrong = {**GRU, "hide": {"state": [2]}, "distribution": distribution}
        with pytest.raises((ConfigError, CheckpointError), match=message):
            us.train(student(tmp_path / "wrong", teacher.path, **start, init_std=std, algo={"actor": wrong}))
    with pytest.raises(ConfigError, match=r"init_std: is of a policy that is taken over: init_from=RUN"):
        student(tmp_path / "alone", teacher.path, init_std=0.2)


def std_of(std: float | None) -> dict[str, Any]:
    return {} if std is None else {"init_std": std}


@pytest.mark.slow
def test_a_student_without_velocities_is_nearly_as_good_as_its_teacher(tmp_path: Path) -> None:
    """At least 90 % of the way from a random policy's return to the teacher's: with PPO beside it, and by DAgger."""
    quiet = ["threads=1", "eval_every=0", "save_every=60"]
    teacher = us.train(load_config("ppo/pendulum", [*quiet, f"out={tmp_path / 'teacher'}"]))
    random = -1200.0
    best = teacher.evaluate(episodes=50).mean
    assert best > -250.0
    for name, words in (("student", []), ("dagger", ["algo.policy_coef=0", "algo.objectives.teacher.weight=1"])):
        told = [f"policies.teacher.path={teacher.path}", f"out={tmp_path / name}", *quiet, *words]
        reached = us.train(load_config("ppo/pendulum-student", told)).evaluate(episodes=50).mean
        assert not math.isnan(reached)
        assert (reached - random) / (best - random) >= 0.9, (name, reached, best)
