"""Small weighed sources that tests share."""

from typing import Any

import torch
from drift_world import GAMMA
from torch import Tensor

from understudy.core.protocols import Demand, Policy
from understudy.data.dataset import Dataset
from understudy.sources.importance import ImportanceSettings, WeighedSource

CPU = torch.device("cpu")
BEHAVIOUR = {"updates": 100, "batch_size": 128, "hidden": (32,)}


def weighed(dataset: Dataset, demand: Demand | None = None, seed: int = 0, **settings: Any) -> WeighedSource:
    """Refreshed cheaply and often."""
    chosen = {"every": 5, "rows": 300, "behaviour": BEHAVIOUR, **settings}
    return WeighedSource.build(
        dataset, demand or Demand(gamma=GAMMA), 32, seed, CPU, settings=ImportanceSettings.parse(chosen, "settings")
    )


def after_refresh(source: WeighedSource, policy: Policy) -> Tensor:
    """The weights of all rows once the policy was looked at."""
    source.inner.drawn = source.settings.every
    source.next(policy)
    return source.weights
