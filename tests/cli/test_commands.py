"""Every command of the contract, on its happy path."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from command_line import complaint, config_file, understudy

import understudy as us
from shipped import command_words
from skill_cases import zones_set
from understudy.algorithms import algorithm_names
from understudy.run.packaged import config_names
from understudy.run.suites import suites_of
from worlds import judges_only

COMMANDS = ("train", "resume", "evaluate", "predict", "video", "plot", "runs", "collect", "list", "explain", "check")
EXTRAS = {
    "ciql/halfcheetah-bullet": ("bullet", "pybullet_envs_gymnasium"),
    "ciql/halfcheetah-bullet-original": ("bullet", "pybullet_envs_gymnasium"),
    **dict.fromkeys(("bc/hopper-ladder", "iql/hopper-ladder", "td3bc/hopper-ladder"), ("mujoco", "mujoco")),
    **dict.fromkeys((name for name in config_names() if "/go1" in name), ("envpool", "envpool")),
    "ppo/gym": ("mujoco", "mujoco"),
    **dict.fromkeys((name for name in config_names() if name.startswith("ppo/halfcheetah")), ("mujoco", "mujoco")),
    "ppo/robot": ("mujoco", "mujoco"),
    **{
        f"{method}/{robot}": ("mujoco", "mujoco")
        for method in ("sac", "redq", "droq", "td3")
        for robot in ("hopper", "halfcheetah")
    },
}
"""Of shipped configs that need more than the core: the extra, and the package it brings."""
OBSERVATIONS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -2.0], [-1.0, 0.0, 8.0]], np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("cli")
    spoken = understudy("train", config_file(folder / "small.yaml", folder / "run"), "save_every=10")
    assert spoken.code == 0, spoken.err
    data = json.loads((folder / "run" / "meta.json").read_text())["dataset"]["return_mean"]
    mean = json.loads((folder / "run" / "result.json").read_text())["eval/return_mean"]
    assert spoken.out.startswith(f"finished: mean return {data:.2f} (data) → {mean:.2f} over 2 episodes\n")
    assert f"run: {folder / 'run'}" in spoken.out
    return folder / "run"


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str) -> None:
    spoken = understudy(command, "--help")
    assert spoken.code == 0
    assert spoken.out.startswith("Usage: understudy ")
    assert command in understudy("--help").out


def test_version_is_that_of_the_package_and_of_torch() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = torch.__version__.partition("+")[0]
    for words in (["--version"], ["--version", "train"], ["--debug", "--version"]):
        spoken = understudy(*words)
        assert (spoken.code, spoken.err) == (0, "")
        assert spoken.out.partition("+")[0].rstrip() == f"understudy {project['version']}, torch {installed}"


def test_train_speaks_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    spoken = understudy("train", config_file(tmp_path / "c.yaml", tmp_path / "run", "bc"))
    lines = spoken.err.splitlines()
    assert lines[0].startswith("collecting: 2/2 episodes, ")
    assert lines[-1].startswith("training: 20/20 updates, ")
    assert "return " in lines[-1]
    assert "\x1b" not in spoken.err + spoken.out
    assert "\r" not in spoken.err


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    config = config_file(tmp_path / "c.yaml", tmp_path / "run", "bc")
    commands: list[list[str | Path]] = [
        ["train", config],
        ["resume", tmp_path / "run", "updates=21"],
        ["collect", config, "--out", tmp_path / "store"],
    ]
    for words in commands:
        spoken = understudy(*words, "--quiet")
        assert (spoken.code, spoken.out, spoken.err) == (0, "", ""), words


def evaluated(run: Path, *words: str) -> dict[str, object]:
    spoken = understudy("evaluate", run, "--json", "--quiet", *words)
    assert spoken.code == 0, spoken.err
    assert spoken.err == ""
    result: dict[str, object] = json.loads(spoken.out)
    return result


def test_evaluate_repeats_what_training_saw(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    for line in lines:
        assert evaluated(run, "--checkpoint", str(line["updates"])) == {k: line[k] for k in line if k != "updates"}
    assert evaluated(run) == evaluated(run, "--checkpoint", "last") == evaluated(run, "-c", "20")
    best = max(lines, key=lambda line: float(line["eval/return_mean"]))
    assert evaluated(run, "--checkpoint", "best")["returns"] == best["returns"]


def test_evaluate_counts_samples_and_speaks(run: Path) -> None:
    assert len(str(evaluated(run, "--episodes", "3")["returns"]).split(",")) == 3
    assert evaluated(run, "--stochastic") == evaluated(run, "--stochastic") != evaluated(run)
    spoken = understudy("evaluate", run, "-n", "2")
    assert spoken.out.splitlines()[0].startswith("episode   0  return ")
    assert spoken.out.splitlines()[2].startswith("mean return ")
    assert spoken.out.splitlines()[3].startswith("lengths 200 to 200, mean 200.0  (")
    assert "95 % interval" in spoken.out


def test_predict_equals_python(run: Path, tmp_path: Path) -> None:
    expected = us.load_policy(run)
    for name, values in (("batch", OBSERVATIONS), ("single", OBSERVATIONS[0]), ("double", OBSERVATIONS.astype(float))):
        np.save(tmp_path / f"{name}.npy", values)
        spoken = understudy("predict", run, "--obs", tmp_path / f"{name}.npy", "--out", tmp_path / "actions.npy")
        assert spoken.code == 0, spoken.err
        actions = np.load(tmp_path / "actions.npy")
        assert actions.shape == ((1,) if name == "single" else (3, 1))
        np.testing.assert_array_equal(actions, us.predict(expected, values))
        np.testing.assert_array_equal(actions, us.Run(run).predict(values))
        assert (np.abs(actions) <= 2.0).all()


def test_predict_takes_groups_and_masks_in_an_npz(run: Path, tmp_path: Path) -> None:
    expected = us.Run(run).predict(OBSERVATIONS)
    for name in ("state", "observations", "observations/state"):
        np.savez(tmp_path / "obs.npz", allow_pickle=False, **{name: OBSERVATIONS})
        out = tmp_path / "actions.npy"
        assert understudy("predict", run, "--obs", tmp_path / "obs.npz", "--out", out).code == 0
        np.testing.assert_array_equal(np.load(out), expected)
    for more, told in (("action_mask", "this policy was made without masks"), ("goal", "groups do not fit the policy")):
        np.savez(tmp_path / "obs.npz", allow_pickle=False, state=OBSERVATIONS, **{more: np.ones((3, 2))})
        assert told in complaint("predict", run, "--obs", tmp_path / "obs.npz", code=1)
    (tmp_path / "obs.npz").write_bytes(b"PK\x03\x04 no archive")
    assert "not a readable npz file" in complaint("predict", run, "--obs", tmp_path / "obs.npz", code=1)
    assert "not a readable .npy file" in complaint("predict", run, "--obs", tmp_path / "nowhere.npz", code=1)


def test_predict_prints_and_samples(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "obs.npy", OBSERVATIONS)
    printed = understudy("predict", run, "--obs", tmp_path / "obs.npy")
    np.testing.assert_allclose(yaml.safe_load(printed.out), us.Run(run).predict(OBSERVATIONS), atol=1e-5)
    words = ("predict", run, "--obs", tmp_path / "obs.npy", "--stochastic")
    assert understudy(*words).out == understudy(*words, "--seed", "0").out != understudy(*words, "--seed", "1").out
    best = understudy("predict", run, "--obs", tmp_path / "obs.npy", "--checkpoint", "10")
    assert best.out != printed.out


def test_collect_rolls_out_who_is_named(tmp_path: Path) -> None:
    target = str(tmp_path / "data.npz")
    words = ["collect", "CartPole-v1", "-p", "scripted", "-p", "random:2", "-n", "3", "--out", target]
    spoken = understudy(*words)
    assert spoken.code == 0
    assert spoken.out.startswith("3 episodes, ")
    assert understudy("dataset", "inspect", tmp_path / "data.npz").code == 0
    assert "data.npz: already exists." in understudy(*words).err
    told = understudy(*words[:-1], str(tmp_path / "minari"), "--minari", "cart/mixed-v0").out
    written = told.split("written to ")[1].split(", fingerprint")[0]
    assert us.load_dataset(written).episodes == 3  # what is told can be given on


def test_collect_makes_a_store_that_can_be_trained_on(tmp_path: Path) -> None:
    config = config_file(tmp_path / "c.yaml", tmp_path / "run", "bc")
    spoken = understudy("collect", config, "--out", tmp_path / "store")
    assert spoken.out.startswith("2 episodes, 400 steps, mean return -")
    dataset = us.load_dataset(tmp_path / "store")
    assert f"fingerprint {dataset.fingerprint}" in spoken.out
    trained = understudy("train", config, "data.recipe=null", f"data.path={tmp_path / 'store'}", "updates=5", "-q")
    assert trained.code == 0, trained.err
    assert us.Run(tmp_path / "run").config.logged.model_dump()["fingerprint"] == dataset.fingerprint


def test_list() -> None:
    algorithms = understudy("list", "algorithms").out.splitlines()
    assert [line.split()[0] for line in algorithms] == sorted(algorithm_names())
    assert [line.split()[0] for line in understudy("list", "configs").out.splitlines()] == config_names()
    assert "Pendulum-v1" in understudy("list", "envs").out.splitlines()
    assert "hopper-medium-v2" in understudy("list", "datasets").out


@pytest.mark.parametrize("algorithm", sorted(algorithm_names()))
def test_explain(algorithm: str) -> None:
    spoken = understudy("explain", algorithm)
    assert spoken.code == 0
    assert "Settings (change one with key=value):" in spoken.out
    network = "critic" if judges_only(algorithm) else "actor"
    assert f"  algo.{network}.hidden=[" in spoken.out


@pytest.mark.parametrize("name", [name for name in config_names() if "/" in name and not suites_of(name)])
def test_check_prints_the_whole_config_of_every_shipped_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "ppo/zones-gate":
        assert "'policies/mutex'" in understudy("check", name).err
        monkeypatch.chdir(tmp_path)
        us.save_policy(zones_set(), "policies/mutex")
    if name.endswith("-track") or name == "ppo/humanoid-style":  # whose environment is made of a motion
        told = understudy("check", name, *command_words(name)).err
        assert "motions.path '" in told or find_spec("mujoco") is None
        if name != "ppo/circle-track":
            return
        monkeypatch.chdir(tmp_path)
        assert understudy("collect", "UnderstudyCircle-v0", "-p", "scripted", "-n", "2", "-o", "circle", "-q").code == 0
    spoken = understudy("check", name, *command_words(name), "seed=3")
    extra, module = EXTRAS.get(name, ("", "understudy"))
    if find_spec(module) is None:
        assert f"understudy-rl[{extra}]" in spoken.err
        return
    assert spoken.code == 0, spoken.err
    content = yaml.safe_load(spoken.out)
    assert content["seed"] == 3
    given = "".join(f"/{word.removeprefix('env.id=')}" for word in command_words(name) if word.startswith("env.id="))
    assert content["out"] == f"runs/{name}{given}/3"
    (tmp_path / "resolved.yaml").write_text(spoken.out)
    assert understudy("check", tmp_path / "resolved.yaml").out == spoken.out


def test_debug_shows_where_it_happened(run: Path) -> None:
    for words in (("--debug", "resume", str(run)), ("resume", str(run), "--debug")):
        spoken = understudy(*words)
        assert spoken.code == 1
        assert "Traceback (most recent call last)" in spoken.err
        assert "RunError" in spoken.err


def process(*words: str | Path) -> "subprocess.Popen[str]":
    """The command as a shell starts it."""
    command = [sys.executable, "-c", "from understudy.cli.main import main; main()", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def test_a_real_process_stops_on_ctrl_c_and_another_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    changes: dict[str, Any] = {"updates": 800, "log_every": 20, "eval_every": 800, "save_every": 800}
    whole = config_file(tmp_path / "whole.yaml", tmp_path / "whole", **changes)
    first = process("train", config_file(tmp_path / "c.yaml", run, **changes), "--quiet")
    deadline = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert out == ""
    assert err.count("\n") == 1
    assert err.endswith(f"Go on with: understudy resume {run}\n")
    second = process("resume", run, "--quiet")
    assert second.communicate(timeout=120) == ("", "")
    assert second.returncode == 0
    assert understudy("train", whole, "-q").code == 0
    for name in ("metrics.jsonl", "eval.jsonl", "checkpoints/000000800/state.safetensors", "result.json"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_real_process_that_fails_says_one_sentence() -> None:
    failed = process("train", "iql/pendulm")
    out, err = failed.communicate(timeout=60)
    assert failed.returncode == 2
    assert out == ""
    assert err == "config 'iql/pendulm': no config of this name. Did you mean 'iql/pendulum'? A file ends in .yaml.\n"
