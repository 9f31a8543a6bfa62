"""The whole CQL class on one state with known rewards: networks, samples, densities and steps meet the integral."""

import math

import numpy as np
import pytest
import torch

from learners import CPU
from understudy import Box, Dataset, Episode
from understudy.algorithms.cql import CQL, Config, build
from understudy.core.protocols import BuildContext

UPDATES = 800
GRID = torch.linspace(-1.0, 1.0, 201).unsqueeze(1)


def reward_of(action: np.ndarray) -> np.ndarray:
    return 1.0 - (action - 0.5) ** 2


def one_step_world() -> Dataset:
    """Uniform actions in [-1, 1], paid 1 − (a − ½)², and the episode is over."""
    actions = np.linspace(-1, 1, 64, dtype=np.float32)
    episodes = [
        Episode(
            {"state": np.zeros((2, 1), np.float32)},
            np.array([[action]], np.float32),
            np.array([reward_of(action)], np.float32),
            terminated=True,
            truncated=False,
        )
        for action in actions
    ]
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)), name="one step")


def learned(weight: float) -> tuple[CQL, float]:
    dataset = one_step_world()
    network = {"hidden": [32, 32]}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "entropy_learning_rate"), 5e-3)
    broad = {"entropy_target": 0.5, "sampled_actions": 20}  # few samples of a narrow policy see little of the integral
    settings = {**broad, "penalty_weight": weight, "polyak": 0.05, "actor": network, "critic": network}
    algorithm = build(Config.parse({**settings, **rates}), BuildContext(dataset.spec, UPDATES, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    gap = 0.0
    for update in range(UPDATES):
        metrics = algorithm.update(batch).metrics
        gap += float(metrics["penalty/gap"]) / 200 if update >= UPDATES - 200 else 0.0
    return algorithm, gap


@pytest.fixture(scope="module")
def bold() -> tuple[CQL, float]:
    torch.set_num_threads(1)
    return learned(0.0)


@pytest.fixture(scope="module")
def cautious() -> tuple[CQL, float]:
    torch.set_num_threads(1)
    return learned(1.0)


def values(algorithm: CQL) -> torch.Tensor:
    with torch.no_grad():
        q: torch.Tensor = algorithm.critic(torch.zeros(len(GRID), 1), GRID)
        return q.mean(0)


def test_without_a_penalty_critics_know_the_reward(bold: tuple[CQL, float]) -> None:
    expected = torch.as_tensor(reward_of(GRID.numpy())[:, 0])
    torch.testing.assert_close(values(bold[0]), expected, atol=0.06, rtol=0)


def test_the_reported_gap_is_the_integral(bold: tuple[CQL, float]) -> None:
    """log ∫ e^Q da − E_data Q for the critic that was learned: uniform data, so the mean over the grid."""
    q = values(bold[0]).double()
    truth = math.log(float(q.exp().mean()) * 2.0) - float(q.mean())
    assert bold[1] == pytest.approx(truth, abs=0.03)


def test_the_penalty_flattens_critics_by_the_known_amount(cautious: tuple[CQL, float]) -> None:
    """(Q − r)² + α·(log∫e^Q − Q) with uniform data: 2(Q − r) + α·(2·e^Q/∫e^Q − 1) = 0 at every action."""
    q = torch.as_tensor(reward_of(GRID.numpy())[:, 0]).double()
    reward = q.clone()
    for _ in range(2000):
        slope = 2 * (q - reward) + (q.exp() / q.exp().mean() - 1.0)
        q = q - 0.05 * slope
    torch.testing.assert_close(values(cautious[0]).double(), q, atol=0.08, rtol=0)
    assert float(q.amax() - q.amin()) < 0.8 * float(reward.amax() - reward.amin())
