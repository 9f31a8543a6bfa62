"""Those who learn by replay solve small tasks with their shipped configs, in few steps of the environment."""

from pathlib import Path

import pytest

import understudy as us


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "steps", "enough"),
    [
        ("sac/pendulum", 10_000, -200),
        ("td3/pendulum", 10_000, -200),
        ("redq/pendulum", 2500, -200),
        ("rlpd/pendulum", 2000, -200),
        ("discrete_sac/cartpole", 10_000, 250),
    ],
)
def test_in_few_steps(config: str, steps: int, enough: float, tmp_path: Path) -> None:
    """Chance has about −1200 at the pendulum and 20 at the pole; an expert −150 and 500."""
    run = us.train(config, out=str(tmp_path / "run"), eval_episodes=20, tensorboard=False)
    evaluations = run.evaluations()
    assert all(len(one["returns"]) == 20 for one in evaluations)
    assert evaluations[-1]["env_steps"] <= steps
    assert max(one["eval/return_mean"] for one in evaluations) >= enough
