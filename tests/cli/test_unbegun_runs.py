"""Ctrl-C before the first update leaves nothing behind: no folder, no lock, and the same command starts the run."""

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from command_line import config_file
from terminals import shown

import understudy as us
from understudy.core.errors import DataError


class Impatient(gymnasium.Env[Any, Any]):
    """Presses Ctrl-C, once or twice, at a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, times: int = 1, at: int = 5) -> None:
        self.times, self.at, self.steps = times, at, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        for _ in range(self.times if self.steps == self.at else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return np.zeros(2, np.float32), 0.0, False, False, {}


gymnasium.register("Impatient-v0", lambda **given: Impatient(), max_episode_steps=20)
gymnasium.register("VeryImpatient-v0", lambda **given: Impatient(times=2), max_episode_steps=20)


def test_while_data_are_collected(tmp_path: Path) -> None:
    recipe = {"env": "Impatient-v0", "episodes": 3, "behaviours": [{"policy": "random"}]}
    out = tmp_path / "runs" / "deep" / "run"
    config = config_file(tmp_path / "c.yaml", out, "bc", data={"recipe": recipe}, env={"id": "Impatient-v0"})
    said = " ".join(shown(200, ["train", str(config)]))
    assert f"run '{out}': stopped. Nothing was begun: the same command starts it." in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml"]


def test_in_the_first_rollout(tmp_path: Path) -> None:
    """Asked twice, also where somebody else listens to Ctrl-C around us."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        check_first_rollout(tmp_path / "heard")
    finally:
        signal.signal(signal.SIGINT, before)
    check_first_rollout(tmp_path)


def check_first_rollout(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(parents=True)
    words = [
        "train",
        "ppo/pendulum",
        "env.id=VeryImpatient-v0",
        f"out={tmp_path}/runs/run",
        "updates=3",
        "source.workers=1",
    ]
    said = " ".join(shown(200, words))
    assert "stopped. Nothing was begun: the same command starts it." in said
    assert list((tmp_path / "runs").iterdir()) == []  # which was there before


def test_what_was_saved_is_kept(tmp_path: Path) -> None:
    """One Ctrl-C in the first rollout: the update is finished, and saved."""
    words = ["train", "ppo/pendulum", "env.id=Impatient-v0", f"out={tmp_path}/run", "updates=3", "source.num_envs=1"]
    said = " ".join(shown(200, [*words, "source.rollout_length=8"]))
    assert "stopped and saved at update 1" in said
    assert (tmp_path / "run" / "config.yaml").is_file()


def test_what_is_wrong_before_the_first_update_leaves_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    settings: dict[str, Any] = {"data.recipe": None, "data.path": str(tmp_path / "bad.npz")}
    with pytest.raises(DataError):
        us.train("iql/pendulum", out=str(tmp_path / "a" / "b"), **settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.npz"]
