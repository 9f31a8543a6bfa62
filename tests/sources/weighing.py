"""Small weighed sources that tests share."""

from typing import Any

import torch
from drift_world import GAMMA
from torch import Tensor

from learners import offline_source
from understudy.core.protocols import Demand, Policy
from understudy.data.dataset import Dataset
from understudy.sources.importance.row_weights import RowWeights
from understudy.sources.offline import OfflineSource

CPU = torch.device("cpu")
BEHAVIOUR = {"updates": 100, "batch_size": 128, "hidden": (32,)}


def weighed(dataset: Dataset, demand: Demand | None = None, seed: int = 0, **settings: Any) -> OfflineSource:
    """Refreshed cheaply and often."""
    asked = demand or Demand(gamma=GAMMA)
    chosen = {"every": 5, "rows": 300, "behaviour": BEHAVIOUR, **settings}
    return offline_source(
        dataset, Demand(asked.columns, asked.horizon, asked.gamma, weighed=True), 32, seed, importance=chosen
    )


def weights_of(source: OfflineSource) -> Tensor:
    """What each row counts now [steps]."""
    return weighing(source).weights


def weighing(source: OfflineSource) -> RowWeights:
    (found,) = source.weighing
    return found


def after_refresh(source: OfflineSource, policy: Policy) -> Tensor:
    """The weights of all rows once the policy was looked at."""
    source.sampler.drawn = weighing(source).settings.every
    source.next(policy)
    return weights_of(source)
