"""PPO learns: in seconds where nothing is hidden, and beyond its baseline where something is."""

from pathlib import Path
from typing import Any

import pytest

import understudy as us

RUNS = {"eval_every": 1000, "save_every": 1000, "tensorboard": False, "log_every": 5}


def learned(config: str, out: Path, episodes: int = 20, **settings: Any) -> float:
    """The greedy policy's mean return at the end of a shipped config."""
    run = us.train(config, out=str(out), **{**RUNS, "eval_episodes": episodes, **settings})
    return float(run.evaluations()[-1]["eval/return_mean"])


def test_cartpole_in_seconds(tmp_path: Path) -> None:
    """Chance keeps the pole up for about 20 steps; 500 is all there is."""
    assert learned("ppo/cartpole", tmp_path / "run", updates=30) > 400


def test_pendulum_in_seconds(tmp_path: Path) -> None:
    """Chance has about −1200, an expert about −150."""
    assert learned("ppo/pendulum", tmp_path / "run", updates=25) > -250


@pytest.mark.slow
def test_two_choices_at_once(tmp_path: Path) -> None:
    """Multi-discrete thrusters: standing still in the wind has about −90."""
    settings: dict[str, Any] = {"env.id": "UnderstudyWindyThrusters-v0", "algo.learning_rate": 3e-3}
    assert (
        learned("ppo/privileged-critic", tmp_path / "run", source={"num_envs": 16, "rollout_length": 50}, **settings)
        > -30
    )


@pytest.mark.slow
def test_a_critic_that_sees_more_teaches_faster(tmp_path: Path) -> None:
    """At equal steps and settings, over two seeds; only the critic's eyes differ."""
    means = {}
    for sees in ("[state]", "[state, privileged]"):
        runs = [
            learned("ppo/privileged-critic", tmp_path / sees / str(seed), 100, seed=seed, **{"algo.critic.sees": sees})
            for seed in (0, 2)
        ]
        means[sees] = sum(runs) / len(runs)
    assert means["[state, privileged]"] > -12
    assert means["[state, privileged]"] > means["[state]"] + 8


@pytest.mark.slow
def test_memory_finds_the_velocity_that_nobody_tells(tmp_path: Path) -> None:
    """Without memory the direction of motion cannot be known, and the pendulum cannot be held."""
    blind: dict[str, Any] = {"algo.actor.memory.kind": "none", "algo.critic.memory.kind": "none"}
    remembering = learned("ppo/pendulum-masked", tmp_path / "gru")
    forgetting = learned("ppo/pendulum-masked", tmp_path / "mlp", **blind)
    assert remembering > -350
    assert remembering > forgetting + 300


@pytest.mark.slow
def test_pixels_are_enough(tmp_path: Path) -> None:
    """Chance keeps the pole up for about 20 steps."""
    assert learned("ppo/cartpole-pixels", tmp_path / "run", 10) > 150
