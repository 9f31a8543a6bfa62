"""A hidden velocity is estimated from angles, and the policy that is shown the estimate swings up."""

import json
from pathlib import Path
from typing import Any

import pytest

import understudy as us


@pytest.mark.slow
def test_a_hidden_velocity_is_explained_and_used(tmp_path: Path) -> None:
    """R² above 0.9 over the last ten updates, in which every row was shown estimates. Chance has about −1200; who reads
    the true velocity −150; nobody who has neither it nor a memory gets far beyond −1000."""
    settings: dict[str, Any] = {"eval_episodes": 20, "eval_every": 100, "tensorboard": False}
    run = us.train("ppo/pendulum-estimator", out=str(tmp_path / "run"), **settings)
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["estimator/replaced"] for line in lines[-10:]] == [1.0] * 10
    assert min(line["estimator/r2.state.velocity.0"] for line in lines[-10:]) > 0.9
    assert float(run.evaluations()[-1]["eval/return_mean"]) > -250
