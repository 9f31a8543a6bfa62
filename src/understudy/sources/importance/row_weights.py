"""How much each row of a fixed dataset counts: a weight, which a provider refreshes on a schedule.

Weights and what was learned on the way to them are state: a resumed run goes on with the same bits.
"""

import warnings
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import IMPORTANCE
from understudy.core.errors import DataError
from understudy.core.protocols import Demand, Metrics, Policy
from understudy.core.state import Static
from understudy.data.experience import LoggedExperience
from understudy.ratios import WeightStatistics, tame
from understudy.sources.importance.provider import Provider
from understudy.sources.importance.providers import choose_provider
from understudy.sources.importance.settings import ImportanceSettings


@final
@dataclass
class RowWeights:
    settings: Static[ImportanceSettings]
    batch_size: Static[int]
    provider: Provider
    weights: Tensor
    """What each row counts [steps], float32: 1 on average, and 1 each before the first refresh."""
    facts: dict[str, Tensor]
    """Statistics of the weights, for the log: [] each."""
    refreshes: int = 0
    """How often the weights were computed."""

    def of(self, rows: Tensor) -> Tensor:
        """Of these rows [B], as of now."""
        return self.weights.index_select(0, rows)

    def metrics(self) -> Metrics:
        """Their statistics, for the log."""
        return {**self.facts, "importance/std": self.weights.std(correction=0)}

    def refresh(self, policy: Policy, drawn: int) -> None:
        """Weigh all rows again, if that is due before the batch that follows so many."""
        due = self._due(drawn)
        if self.refreshes >= due:
            return
        weighing = tame(self.provider.weigh(policy, due), self.settings.low, self.settings.high)
        self._warn_of_few(weighing.statistics)
        self.weights = weighing.weights.to(self.weights.device, torch.float32)
        self.facts = facts_of(weighing.statistics, self.weights.device)
        self.refreshes = due

    def _due(self, drawn: int) -> int:
        """How many refreshes there should have been before the next batch."""
        passed = drawn // self.settings.every
        return {"never": 0, "once": 1, "every": passed + 1, "later": passed}[self.provider.timing]

    def _warn_of_few(self, statistics: WeightStatistics) -> None:
        """A batch may hold no row that counts."""
        effective = statistics.effective_share * self.batch_size
        if effective < 1:
            told = f"{effective:.2g} rows of a batch of {self.batch_size} count, on average"
            warnings.warn(f"{self.settings.where}: {told}: most updates learn nothing", stacklevel=3)


def row_weights(
    data: LoggedExperience, demand: Demand, settings: ImportanceSettings, batch_size: int, seed: int
) -> RowWeights:
    """Of a dataset's rows; the policy's discount is that of the demand. Hidden columns are not looked at."""
    dataset = data.dataset
    if IMPORTANCE in dataset.extra and settings.column != IMPORTANCE:
        do = f"Rename it, or use it: source.importance.provider=column and source.importance.column={IMPORTANCE}."
        raise DataError(f"dataset '{dataset.name}', column '{IMPORTANCE}'", "its name is taken by weights", do=do)
    provider = choose_provider(data, settings, demand.gamma, seed)
    even = torch.ones(dataset.steps, device=data.device)
    return RowWeights(settings, batch_size, provider, even, facts_of(EVEN, data.device))


EVEN = WeightStatistics(1, 1.0, 1.0, 1.0, 1.0, 0.0)


def facts_of(statistics: WeightStatistics, device: torch.device) -> dict[str, Tensor]:
    """What a log shows of weights."""
    shown = {
        "effective_share": statistics.effective_share,
        "largest": statistics.largest,
        "smallest": statistics.smallest,
        "clipped_share": statistics.clipped_share,
    }
    return {f"importance/{name}": torch.tensor(value, device=device) for name, value in shown.items()}
