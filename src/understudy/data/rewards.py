"""Rewards as they are learned from: clip(r·scale + shift), fitted once on a dataset. Returns are reported raw.

A preset comes first (D4RL's, or `standardize`: (r − mean)/std over all rows), then a factor and a shift of one's own,
then the bounds.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.dataset import Dataset

RewardPreset = Literal["none", "standardize", "iql_locomotion", "antmaze_iql", "antmaze_cql", "antmaze_rebrac"]


@dataclass(frozen=True)
class RewardTransform:
    scale: float = 1.0
    shift: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, reward: Tensor) -> Tensor:
        moved = reward * self.scale + self.shift
        return moved.clamp(self.low, self.high) if self.clips else moved

    @property
    def clips(self) -> bool:
        return math.isfinite(self.low) or math.isfinite(self.high)

    def told(self) -> dict[str, Any]:
        """Its numbers, for whoever wants to do the same."""
        bounds = {"reward_clip": [self.low, self.high]} if self.clips else {}
        return {"reward_scale": self.scale, "reward_shift": self.shift, **bounds}


def reward_transform(
    preset: RewardTransform, scale: float = 1.0, shift: float = 0.0, bounds: tuple[float, float] | None = None
) -> RewardTransform:
    """`preset`, then r·scale + shift, then between the bounds."""
    low, high = bounds or (-math.inf, math.inf)
    return RewardTransform(preset.scale * scale, preset.shift * scale + shift, low, high)


def fit_rewards(preset: RewardPreset, dataset: Dataset) -> RewardTransform:
    """The preset's numbers for this dataset; `iql_locomotion` scales the return range of true episodes to 1000."""
    if preset == "standardize":
        mean, deviation = _moments(dataset)
        if deviation == 0:
            raise DataError(
                f"dataset '{dataset.name}'",
                "every reward is the same, so they cannot be standardised",
                got=mean,
                do="Use data.reward=none.",
            )
        return RewardTransform(scale=1.0 / deviation, shift=-mean / deviation)
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


def _moments(dataset: Dataset) -> tuple[float, float]:
    """Mean and standard deviation over all rows, in float64, a block at a time."""
    column, total = dataset.rewards.cpu().numpy(), dataset.steps
    mean = sum(float(block.sum(dtype=np.float64)) for block in dataset.blocks(column)) / total
    squares = sum(float(np.square(block.astype(np.float64) - mean).sum()) for block in dataset.blocks(column))
    return mean, math.sqrt(squares / total)
