"""Reward presets in closed form."""

import numpy as np
import pytest
import torch

from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Demand
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.experience import LoggedExperience
from understudy.data.rewards import RewardPreset, RewardTransform, fit_rewards, reward_transform
from understudy.data.transforms import Transforms
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
        ("standardize", [-1.0, -1 / 3, -8 / 3]),
    ],
)
def test_each_preset(preset: RewardPreset, expected: list[float]) -> None:
    dataset = dataset_with([1.0, 4.0], [0.5, 0.5])  # returns 5 and 1: the spread is 4
    given = torch.tensor([0.0, 1.0, -2.5])
    if preset == "standardize":
        dataset = dataset_with([0.0, 3.0], [0.0, 3.0])  # mean and deviation 1.5
    assert fit_rewards(preset, dataset)(given).tolist() == pytest.approx(expected)


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


def test_a_factor_a_shift_and_bounds_of_ones_own() -> None:
    """In this order, after the preset; each alone, and all that is left out changes no bit."""
    given = torch.linspace(-3, 3, 25)
    base = RewardTransform(scale=0.7, shift=0.1)
    assert torch.equal(reward_transform(base)(given), base(given))
    assert reward_transform(base) == base
    assert torch.equal(reward_transform(RewardTransform(), scale=10.0)(given), given * 10)
    assert torch.equal(reward_transform(RewardTransform(), shift=-1.0)(given), given - 1)
    assert torch.equal(reward_transform(RewardTransform(), bounds=(-1.0, 0.5))(given), given.clamp(-1.0, 0.5))
    whole = reward_transform(base, scale=2.0, shift=-0.3, bounds=(-1.0, 1.0))
    assert whole(given).tolist() == pytest.approx(((0.7 * given + 0.1) * 2 - 0.3).clamp(-1, 1).tolist(), rel=1e-6)
    assert whole.told() == {"reward_scale": 1.4, "reward_shift": pytest.approx(-0.1), "reward_clip": [-1.0, 1.0]}
    assert "reward_clip" not in base.told()


def test_equal_rewards_cannot_be_standardised() -> None:
    with pytest.raises(DataError, match=r"every reward is the same, .*: got 2.0. Use data.reward=none"):
        fit_rewards("standardize", dataset_with([2.0, 2.0], [2.0]))


def test_a_run_learns_from_transformed_rewards_and_says_how() -> None:
    dataset = random_dataset()
    experience = LoggedExperience.of(
        dataset, Transforms(reward="standardize", scale_rewards=0.5, shift_rewards=1.0, clip_rewards=(0.5, 1.5))
    )
    raw = dataset.rewards.double()
    expected = ((raw - raw.mean()) / raw.std(correction=0) * 0.5 + 1).clamp(0.5, 1.5)
    learned = experience.rows(torch.arange(dataset.steps), Demand()).reward
    assert learned.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    told = experience.transforms_told()
    assert told["reward_clip"] == [0.5, 1.5]
    assert told["reward_scale"] == pytest.approx(0.5 / float(raw.std(correction=0)))
    assert experience.describe()["return_mean"] == pytest.approx(float(dataset.returns().mean()))
    with pytest.raises(ConfigError, match="clip_rewards: low must be below high"):
        Transforms.parse({"clip_rewards": [1, 1]})
