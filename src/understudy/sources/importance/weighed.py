"""Batches of a fixed dataset whose rows say how much they count.

Every row has a weight, which a provider refreshes on a schedule and which is gathered with each batch. Weights and what
was learned on the way to them are state: a resumed run goes on with the same bits.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Transitions
from understudy.core.errors import DataError
from understudy.core.protocols import Demand, Metrics, Policy
from understudy.core.state import Static
from understudy.data.dataset import Dataset
from understudy.ratios import WeightStatistics, tame
from understudy.sources.importance.provider import Provider
from understudy.sources.importance.providers import choose_provider
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.offline import OfflineSource

NOTHING: Mapping[str, Sequence[int]] = {}
IMPORTANCE = "importance"
"""The column that batches get."""


@final
@dataclass
class WeighedSource:
    inner: OfflineSource
    """Draws the rows; its demand includes `row`."""
    settings: Static[ImportanceSettings]
    provider: Provider
    weights: Tensor
    """What each row counts [steps], float32: 1 on average, and 1 each before the first refresh."""
    facts: dict[str, Tensor]
    """Statistics of the weights, [] each."""
    refreshes: int = 0
    """How often the weights were computed."""

    @classmethod
    def build(
        cls,
        dataset: Dataset,
        demand: Demand,
        batch_size: int,
        seed: int,
        device: torch.device,
        *,
        settings: ImportanceSettings,
        weights: str = "",
        replacement: bool = True,
        hidden: Mapping[str, Sequence[int]] = NOTHING,
    ) -> "WeighedSource":
        """As `OfflineSource.build`; the policy's discount is that of the demand. `hidden` columns are not looked at."""
        if IMPORTANCE in dataset.extra and settings.column != IMPORTANCE:
            do = f"Rename it, or use it: source.importance.provider=column and source.importance.column={IMPORTANCE}."
            raise DataError(f"dataset '{dataset.name}', column '{IMPORTANCE}'", "its name is taken by weights", do=do)
        columns = tuple(name for name in demand.columns if name not in (IMPORTANCE, "row"))
        asked = replace(demand, columns=(*columns, "row"))
        inner = OfflineSource.build(dataset, asked, batch_size, seed, device, weights=weights, replacement=replacement)
        even = torch.ones(dataset.steps, device=device)
        return cls(inner, settings, choose_provider(inner, settings, seed, hidden), even, facts_of(EVEN, device))

    @property
    def dataset(self) -> Dataset:
        return self.inner.dataset

    @property
    def demand(self) -> Demand:
        return self.inner.demand

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def into_policy_space(self) -> Callable[[Transitions], Transitions]:
        return self.inner.into_policy_space

    def next(self, policy: Policy) -> Transitions:
        """The next batch, with `extra["importance"]` [B] as of now."""
        if self.refreshes < self._due():
            self._refresh(policy)
        batch = self.inner.next(policy)
        found = self.weights.index_select(0, batch.extra["row"])
        return replace(batch, extra={**batch.extra, IMPORTANCE: found})

    def statistics(self) -> Metrics:
        """Of the weights of all rows, for the log: [] each."""
        return dict(self.facts)

    def _due(self) -> int:
        """How many refreshes there should have been before the next batch."""
        passed = self.inner.drawn // self.settings.every
        return {"never": 0, "once": 1, "every": passed + 1, "later": passed}[self.provider.timing]

    def _refresh(self, policy: Policy) -> None:
        number = self._due()
        weighing = tame(self.provider.weigh(policy, number), self.settings.low, self.settings.high)
        self._warn_of_few(weighing.statistics)
        self.weights = weighing.weights.to(self.device, torch.float32)
        self.facts = facts_of(weighing.statistics, self.device)
        self.refreshes = number

    def _warn_of_few(self, statistics: WeightStatistics) -> None:
        """A batch may hold no row that counts."""
        effective = statistics.effective_share * self.inner.batch_size
        if effective < 1:
            told = f"{effective:.2g} rows of a batch of {self.inner.batch_size} count, on average"
            warnings.warn(f"{self.settings.where}: {told}: most updates learn nothing", stacklevel=3)


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
