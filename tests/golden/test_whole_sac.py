"""The whole SAC class on two states with known rewards: critics and policy meet integrals over the action."""

import math

import numpy as np
import pytest
import torch

from learners import CPU
from understudy import Box, Dataset, Episode
from understudy.algorithms.sac import SAC, Config, build
from understudy.core.protocols import BuildContext

UPDATES, ALPHA, GAMMA = 900, 0.6, 0.9
GRID = torch.linspace(-4.0, 4.0, 801, dtype=torch.float64)
"""Of u, a = tanh(u)."""


def reward_of(action: torch.Tensor) -> torch.Tensor:
    return 1.0 - (action - 0.5).square()


def two_steps() -> Dataset:
    """Uniform actions. The first pays nothing and leads on, the second pays 1 − (a − ½)² and ends the episode."""
    episodes = []
    for action in np.linspace(-1, 1, 64, dtype=np.float32):
        paid = float(reward_of(torch.tensor(action)))
        episodes.append(
            Episode(
                {"state": np.array([[0.0], [1.0], [2.0]], np.float32)},
                np.array([[action], [action]], np.float32),
                np.array([0.0, paid], np.float32),
                terminated=True,
                truncated=False,
            )
        )
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)), name="two steps")


def worth(mean: float, std: float) -> tuple[float, float]:
    """E r and H of a = tanh(u), u ~ N(mean, std²), by quadrature."""
    density = torch.exp(-0.5 * ((GRID - mean) / std).square()) / (std * math.sqrt(2 * math.pi))
    step = float(GRID[1] - GRID[0])
    log_density = density.clamp(min=1e-300).log() - torch.log(1 - torch.tanh(GRID).square())
    paid, entropy = (density * reward_of(torch.tanh(GRID))).sum(), -(density * log_density).sum()
    return float(paid) * step, float(entropy) * step


@pytest.fixture(scope="module")
def learned() -> SAC:
    torch.set_num_threads(1)
    dataset = two_steps()
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 5e-3)
    settings = {"polyak": 0.05, "gamma": GAMMA, "entropy_weight": ALPHA, "entropy_learning_rate": 0.0, **rates}
    network = {"hidden": [32, 32]}
    config = Config.parse({**settings, "actor": network, "critic": network})
    algorithm = build(config, BuildContext(dataset.spec, UPDATES, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    for _ in range(UPDATES):
        algorithm.update(batch)
    return algorithm


def test_critics_know_the_reward(learned: SAC) -> None:
    actions = torch.linspace(-1, 1, 41).unsqueeze(1)
    with torch.no_grad():
        q = learned.critic(torch.ones(41, 1), actions).mean(0)
    torch.testing.assert_close(q, reward_of(actions[:, 0]), atol=0.06, rtol=0)


def test_the_policy_is_the_best_of_its_kind(learned: SAC) -> None:
    """max over μ and σ of E r + α·H, found on a grid."""
    best = max(
        (paid + ALPHA * entropy, mean, std)
        for mean in np.arange(0.0, 1.01, 0.1)
        for std in np.arange(0.3, 2.01, 0.1)
        for paid, entropy in [worth(mean, std)]
    )
    with torch.no_grad():
        mean, log_std = learned.policy.features(learned.policy.perception.look({"state": torch.ones(1, 1)}))[0]
    paid, entropy = worth(float(mean), float(log_std.exp()))
    assert paid + ALPHA * entropy == pytest.approx(best[0], abs=0.01)
    assert float(mean) == pytest.approx(best[1], abs=0.15)
    assert float(log_std.exp()) == pytest.approx(best[2], abs=0.15)


def test_entropy_of_what_follows_is_backed_up(learned: SAC) -> None:
    """Q(s₀,·) = γ·(E r + α·H) of the policy that was learned."""
    with torch.no_grad():
        mean, log_std = learned.policy.features(learned.policy.perception.look({"state": torch.ones(1, 1)}))[0]
        q = learned.critic(torch.zeros(9, 1), torch.linspace(-1, 1, 9).unsqueeze(1)).mean(0)
    paid, entropy = worth(float(mean), float(log_std.exp()))
    expected = GAMMA * (paid + ALPHA * entropy)
    assert abs(ALPHA * entropy) > 0.05, "the entropy must count, or nothing is tested"
    torch.testing.assert_close(q, torch.full((9,), expected), atol=0.06, rtol=0)
