"""Cloned first, then by trial and error: better than the clone, and than trial and error alone at as many steps."""

from pathlib import Path
from typing import Any

import pytest

import understudy as us

ALONE: dict[str, Any] = {"stages": [], "algo.critic_warmup": 0, "algo.actor.normalizer.until": None}
RUNS: dict[str, Any] = {"eval_every": 10, "eval_episodes": 50, "tensorboard": False, "threads": 1}


def returned(run: us.Run) -> float:
    return float(run.evaluations()[-1]["eval/return_mean"])


@pytest.mark.slow
def test_two_stages_beat_their_first_and_ppo_from_scratch_at_equal_steps(tmp_path: Path) -> None:
    """20,480 steps of the environment each, three seeds; all are asked the same fifty starts of their seed."""
    means = dict.fromkeys(("clone", "both", "scratch"), 0.0)
    for seed in range(3):
        both = us.train("ppo/pendulum-two-stage", out=str(tmp_path / f"both-{seed}"), seed=seed, **RUNS)
        clone = us.Run(both.path / "stages" / "1-bc")
        scratch = us.train("ppo/pendulum-two-stage", out=str(tmp_path / f"alone-{seed}"), seed=seed, **RUNS, **ALONE)
        assert both.metrics()[-1]["env_steps"] == scratch.metrics()[-1]["env_steps"] == 20_480
        for name, run in (("clone", clone), ("both", both), ("scratch", scratch)):
            means[name] += returned(run) / 3
    assert means["both"] > means["clone"] + 20
    assert means["both"] > means["scratch"] + 80


@pytest.mark.slow
def test_a_normaliser_that_moves_under_a_clone_makes_it_fall(tmp_path: Path) -> None:
    """What `until: 1` of the config is for."""
    settings = {**RUNS, "algo.actor.normalizer.until": None}
    moved = us.train("ppo/pendulum-two-stage", out=str(tmp_path / "moved"), **settings)
    stood = us.train("ppo/pendulum-two-stage", out=str(tmp_path / "stood"), **RUNS)
    assert returned(stood) > returned(moved) + 100
