"""What was earned from every step on: by walking, for any discount, any reward transform and any length."""

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.core.protocols import Demand
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.data.returns import BLOCK_ROWS, returns_to_go
from understudy.data.rewards import RewardTransform
from understudy.data.transforms import Transforms
from worlds import random_dataset


def walked(rewards: list[float], ends: list[int], gamma: float) -> list[float]:
    earned, total = [0.0] * len(rewards), 0.0
    for step in reversed(range(len(rewards))):
        total = rewards[step] + (0.0 if step + 1 in ends else gamma * total)
        earned[step] = total
    return earned


def column(dataset: Dataset, gamma: float, horizon: int = 1) -> Tensor:
    rows = torch.arange(dataset.steps)
    return dataset.rows(rows, Demand(("return_to_go",), horizon, gamma)).extra["return_to_go"]


def test_returns_are_walked_backward_and_stop_at_the_end_of_an_episode() -> None:
    dataset = random_dataset(count=5, steps=7)
    for gamma in (0.0, 0.9, 1.0):
        truth = walked(dataset.rewards.tolist(), dataset.index.ends.tolist(), gamma)
        for horizon in (1, 3):  # of n-step rows it is that of their first step
            assert column(dataset, gamma, horizon).tolist() == pytest.approx(truth, abs=1e-5)


def test_they_are_of_the_rewards_that_are_learned_from() -> None:
    recorded = random_dataset(count=3, steps=6)
    plain = column(recorded, 0.9)
    learned = LoggedExperience.of(recorded, Transforms(scale_rewards=2.0, shift_rewards=-1.0)).dataset
    truth = walked((2 * recorded.rewards - 1).tolist(), recorded.index.ends.tolist(), 0.9)
    assert column(learned, 0.9).tolist() == pytest.approx(truth, abs=1e-5)
    assert torch.equal(column(recorded, 0.9), plain)
    halved = learned.with_rewards(RewardTransform(scale=0.5))
    assert column(halved, 0.9).tolist() == pytest.approx([value / 2 for value in truth], abs=1e-5)


def test_long_columns_are_computed_in_blocks() -> None:
    """Episodes that lie across blocks, end with one, and begin with one."""
    ends = [10, BLOCK_ROWS - 3, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 5]
    rewards = np.random.default_rng(0).standard_normal(ends[-1])
    asked: list[int] = []

    def of(steps: Tensor) -> Tensor:
        asked.append(len(steps))
        return torch.from_numpy(rewards)[steps]

    found = returns_to_go(of, torch.tensor(ends), 0.999)
    assert max(asked) <= BLOCK_ROWS
    assert found.numpy() == pytest.approx(np.array(walked(rewards.tolist(), ends, 0.999)), abs=1e-4)
