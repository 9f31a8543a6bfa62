"""A sample of states against itself, by an estimator that is none: wrong, and kept to reproduce others.

The true answer is w ≡ 1. What comes out instead is a density: rare states count less.
"""

import warnings
from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed
from understudy.core.state import Static
from understudy.ratios import KLIEP
from understudy.sources.importance.fitting import varying_columns
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import States

BANDWIDTH = 1.0
"""In raw features, whatever their units."""


@final
@dataclass
class BatchSeed:
    states: Static[States]
    settings: Static[ImportanceSettings]
    timing: Static[Literal["every"]] = "every"

    def __post_init__(self) -> None:
        told = "compares a sample with itself: the right weights are all 1, these are known to be wrong"
        warnings.warn(f"{self.settings.where}: {told}", stacklevel=2)

    def weigh(self, policy: Policy, number: int) -> Tensor:
        states = self.states.some(self.settings.rows, f"{number}/rows").states
        columns = varying_columns(states, self.settings)
        estimator = KLIEP(normalisation="sum_alpha", bandwidth=BANDWIDTH, standardise=False)
        seed = derived_seed(self.states.seed, "importance", number)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="normalisation=sum_alpha")
            try:
                fitted = estimator.fit(states[:, columns], states[:, columns], seed=seed)
            except DataError as error:
                raise DataError(self.settings.where, f"no density could be fitted: {error}") from error
        return self.states.everywhere(lambda rows: fitted.weights(rows[:, columns]))
