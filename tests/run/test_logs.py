"""Logs after a crash: what is torn behind the last checkpoint is cut."""

from pathlib import Path

import pytest
from event_files import scalars
from forks import finish, forks
from small import content, short_config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # type: ignore[import-untyped]

from understudy import Actor, load_policy
from understudy.run.event_file import flat_settings
from understudy.run.rundir import RunDir
from understudy.run.sinks import Sinks

SESSION_START = "_hparams_/session_start_info"
TAILS = {
    "half a line": b'{"updates": 6, "loss/ac',
    "zeros of a power cut": b"\0" * 300 + b"\n" + b'{"updates": 8, "loss/actor": 1}\n',
    "a line of another kind": b"[1, 2]\n",
    "not text": b"\xff\xfe\n",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A run that was stopped at update 5, with the config of its uninterrupted twin beside it."""
    config = short_config(tmp_path)
    forks().run("train", config, stop_at=5)
    return config


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("log", ["metrics.jsonl", "eval.jsonl"])
def test_what_lies_behind_the_checkpoint_is_cut(tail: str, log: str, config: Path, tmp_path: Path) -> None:
    with (tmp_path / "run" / log).open("ab") as file:
        file.write(TAILS[tail])
    finish(config, tmp_path / "run", no_plots=True)
    finish(short_config(tmp_path, name="whole"), tmp_path / "whole", no_plots=True)
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_a_sync_puts_every_number_on_disk(tmp_path: Path) -> None:
    """A checkpoint that follows counts on them: whoever dies right after it logs none of them again."""
    sinks = Sinks(RunDir(tmp_path), 0, tensorboard=True)
    for updates in range(1, 101):
        sinks.log(updates, {"loss/actor": 1.0, "loss/critic": 2.0})
    sinks.sync()
    assert [step for step, _ in scalars(tmp_path / "tensorboard")["loss/critic"]] == list(range(1, 101))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 100
    sinks.close()


def test_an_evaluation_that_is_cut_off_and_comes_again_is_shown_once(tmp_path: Path) -> None:
    """Killed after an evaluation was told, and before the checkpoint of the same update knew of it."""
    told = {"eval/return_mean": 1.0, "eval/return_std": 0.0, "returns": [1.0], "lengths": [2]}
    sinks = Sinks(RunDir(tmp_path), 0, tensorboard=True)
    sinks.log(5, {"loss/actor": 1.0})
    sinks.log_evaluation(5, told)
    sinks.log(10, {"loss/actor": 2.0})
    known = sinks.marks()
    sinks.log_evaluation(10, told)
    sinks.log(15, {"loss/actor": 3.0})
    sinks.close()
    again = Sinks(RunDir(tmp_path), 10, tensorboard=True, marks=known)
    again.log_evaluation(10, told)
    again.close()
    seen = scalars(tmp_path / "tensorboard")
    assert seen["loss/actor"] == [(5, 1.0), (10, 2.0)]
    assert seen["eval/return_mean"] == [(5, 1.0), (10, 1.0)]
    more = Sinks(RunDir(tmp_path), 10, tensorboard=True, marks=again.marks())
    more.close()
    assert scalars(tmp_path / "tensorboard")["eval/return_mean"] == [(5, 1.0), (10, 1.0)]


def test_tensorboard_gets_speed_noise_and_settings(tmp_path: Path) -> None:
    finish(short_config(tmp_path, "ppo", log_every=1, tensorboard=True), tmp_path / "run", no_plots=True)
    seen = scalars(tmp_path / "run" / "tensorboard")
    lines = RunDir(tmp_path / "run").metrics()
    assert [step for step, _ in seen["speed/updates_per_second"]] == [line["updates"] for line in lines]
    for name in ("env_steps_per_second", "collection_seconds", "learning_seconds", "evaluation_seconds"):
        assert all(value > 0 for _, value in seen[f"speed/{name}"]), name
    assert not any("speed" in name for line in lines for name in line), "what the clock decides is not in metrics.jsonl"
    policy = load_policy(tmp_path / "run")
    assert isinstance(policy, Actor)
    noise = policy.state_dict()["distribution.log_std"].exp().mean()
    assert lines[-1]["policy/std"] == seen["policy/std"][-1][1] == pytest.approx(float(noise), rel=1e-6)
    summary = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload().SummaryMetadata(SESSION_START)
    found = HParamsPluginData.FromString(summary.plugin_data.content).session_start_info.hparams
    assert found["algo.name"].string_value == "ppo"
    assert found["source.num_envs"].number_value == 3
    assert "out" not in found


def test_settings_are_flat_and_plain() -> None:
    algo = {"name": "iql", "beta": 3.0, "hidden": [8, 8], "none": None}
    settings = {"algo": algo, "out": "/x", "wandb": "", "c": False}
    expected = {"algo.name": "iql", "algo.beta": 3.0, "algo.hidden": "[8, 8]", "c": False}
    assert flat_settings(settings) == expected
