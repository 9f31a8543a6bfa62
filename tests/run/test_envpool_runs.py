"""Runs in EnvPool: groups for two roles, evaluation in a pool of its own, and a resume that begins new episodes."""

from pathlib import Path
from typing import Any

import pytest
from small import content, short_settings

import understudy as us
from understudy.run.config import parse_config

pytest.importorskip("envpool", reason="EnvPool is not installed")

TRUNK = {"hidden": [16]}
GO1: dict[str, Any] = {
    "algo": {
        "name": "ppo",
        "epochs": 1,
        "actor": {"sees": ["state.gyro", "state.command"], **TRUNK},
        "critic": {"sees": ["privileged_state"], **TRUNK},
    },
    "env": {
        "id": "Go1JoystickFlatTerrain-v1",
        "simulator": "envpool",
        "settings": {"max_episode_steps": 20},
        "segments": {"state": {"gyro": [3, 6], "command": [45, 48]}},
    },
    "source": {"num_envs": 4, "rollout_length": 30},
    "updates": 3,
    "eval_every": 3,
    "save_every": 1,
}


def test_a_quadruped_with_a_privileged_critic(tmp_path: Path) -> None:
    run = us.train(parse_config(short_settings("ppo", tmp_path / "run", **GO1)))
    last = run.metrics()[-1]
    assert last["env_steps"] < 3 * 4 * 30, "steps that only begin an episode are none"
    assert {"terms/reward_tracking_lin_vel", "terms/reward_energy"} <= last.keys()
    assert max(run.evaluations()[-1]["lengths"]) <= 20
    assert run.evaluate(2) == run.evaluate(2)


def test_a_resume_is_repeatable(tmp_path: Path) -> None:
    told = []
    for name in ("one", "two"):
        us.train(parse_config(short_settings("ppo", tmp_path / name, **GO1)))
        us.resume(tmp_path / name, updates=5)
        told.append(content(tmp_path / name))
    assert told[0] == told[1]
