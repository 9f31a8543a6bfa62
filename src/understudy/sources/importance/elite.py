"""States of the best episodes count more.

w is the ratio of their states to all states: not the visitation of the policy that learns, but it stands still, is
computed once, and needs neither policy nor behaviour model.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed
from understudy.core.state import Static
from understudy.data.dataset import Dataset
from understudy.sources.importance.fitting import fit_states
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import States


@final
@dataclass
class Elite:
    states: Static[States]
    settings: Static[ImportanceSettings]
    timing: Static[Literal["once"]] = "once"

    def __post_init__(self) -> None:
        elite_rows(self.states.dataset, self.settings)

    def weigh(self, policy: Policy, number: int) -> Tensor:
        best = elite_rows(self.states.dataset, self.settings)
        above = self.states.some(self.settings.rows, "elite", best)
        below = self.states.some(self.settings.rows, f"{number}/rows")
        seed = derived_seed(self.states.seed, "importance", number)
        return self.states.everywhere(fit_states(self.settings, above.states, below.states, seed))


def elite_rows(dataset: Dataset, settings: ImportanceSettings) -> Tensor:
    """Rows of the best episodes by undiscounted return, as recorded [k]; of equal ones, the earlier are better."""
    returns = dataset.returns()
    if not np.isfinite(returns).all() or returns.max() <= returns.min():
        what = "no episode is better than another: their returns are all the same, or not finite"
        raise DataError(settings.where, what, got=f"{dataset.episodes} episodes of return {returns[0]:g}")
    count = min(math.ceil(settings.elite_share * dataset.episodes - 1e-9), dataset.episodes - 1)
    best = np.zeros(dataset.episodes, bool)
    best[np.argsort(-returns, kind="stable")[:count]] = True
    return torch.from_numpy(np.flatnonzero(np.repeat(best, dataset.index.lengths)))
