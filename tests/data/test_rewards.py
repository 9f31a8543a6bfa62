"""Reward presets in closed form."""

import numpy as np
import pytest
import torch

from understudy.core.errors import DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.rewards import RewardPreset, fit_rewards
from worlds import random_dataset


def dataset_with(*rewards: list[float]) -> Dataset:
    episodes = [
        Episode({"state": np.zeros((len(r) + 1, 1))}, np.zeros((len(r), 1)), np.array(r), True, False) for r in rewards
    ]
    return Dataset.from_episodes(episodes, Box((-1.0,), (1.0,)))


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("none", [0.0, 1.0, -2.5]),
        ("antmaze_iql", [-1.0, 0.0, -3.5]),
        ("antmaze_cql", [-5.0, 5.0, -30.0]),
        ("antmaze_rebrac", [0.0, 100.0, -250.0]),
        ("iql_locomotion", [0.0, 250.0, -625.0]),
    ],
)
def test_each_preset(preset: RewardPreset, expected: list[float]) -> None:
    dataset = dataset_with([1.0, 4.0], [0.5, 0.5])  # returns 5 and 1: the spread is 4
    assert fit_rewards(preset, dataset)(torch.tensor([0.0, 1.0, -2.5])).tolist() == expected


def test_locomotion_returns_span_exactly_a_thousand() -> None:
    dataset = random_dataset(count=20)
    scaled = fit_rewards("iql_locomotion", dataset)(dataset.rewards.double()).numpy()
    returns = np.add.reduceat(scaled, dataset.index.ends - dataset.index.lengths)
    assert returns.max() - returns.min() == pytest.approx(1000.0, rel=1e-12)


def test_equal_returns_cannot_be_scaled() -> None:
    with pytest.raises(DataError, match=r"every episode has the same return, .* Use data.reward=none"):
        fit_rewards("iql_locomotion", dataset_with([1.0, 2.0], [3.0]))


def test_n_step_returns_sum_shifted_rewards() -> None:
    dataset = dataset_with([1.0, 0.0, 1.0, 0.0])
    shifted = dataset.with_rewards(fit_rewards("antmaze_iql", dataset))
    batch = shifted.rows(torch.tensor([0, 1, 3]), Demand((), 3, 0.5))
    assert batch.reward.tolist() == [0.0 - 0.5 + 0.0, -1.0 + 0.0 - 0.25, -1.0]
    assert shifted.rows(torch.arange(4), Demand()).reward.tolist() == [0.0, -1.0, 0.0, -1.0]
