"""Reward presets: affine maps r·scale + shift, fitted once on a dataset. Returns are reported on raw rewards."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.dataset import Dataset

RewardPreset = Literal["none", "iql_locomotion", "antmaze_iql", "antmaze_cql", "antmaze_rebrac"]


@dataclass(frozen=True)
class RewardTransform:
    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, reward: Tensor) -> Tensor:
        return reward * self.scale + self.shift


def fit_rewards(preset: RewardPreset, dataset: Dataset) -> RewardTransform:
    """The preset's numbers for this dataset; `iql_locomotion` scales the return range of true episodes to 1000."""
    if preset == "iql_locomotion":
        returns = dataset.returns()
        spread = float(returns.max() - returns.min())
        if spread <= 0:
            raise DataError(
                f"dataset '{dataset.name}'",
                "every episode has the same return, so iql_locomotion cannot scale it",
                do="Use data.reward=none.",
            )
        return RewardTransform(scale=1000.0 / spread)
    return {
        "none": RewardTransform(),
        "antmaze_iql": RewardTransform(shift=-1.0),
        "antmaze_cql": RewardTransform(scale=10.0, shift=-5.0),
        "antmaze_rebrac": RewardTransform(scale=100.0),
    }[preset]
