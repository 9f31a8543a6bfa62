"""Providers by name, each looked over before the first step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Policy
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.sources.importance.batch_seed import BatchSeed
from understudy.sources.importance.column import Column
from understudy.sources.importance.coptd import Coptd
from understudy.sources.importance.dualdice import DualDiceProvider
from understudy.sources.importance.elite import Elite
from understudy.sources.importance.provider import Provider
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import States, telling_features
from understudy.sources.offline import OfflineSource


@final
@dataclass
class UniformImportance:
    """Every row counts 1, and nobody is ever asked."""

    timing: Static[Literal["never"]] = "never"

    def weigh(self, policy: Policy, number: int) -> Tensor:
        raise AssertionError("never due")


def choose_provider(
    source: OfflineSource, settings: ImportanceSettings, seed: int, hidden: Mapping[str, Sequence[int]]
) -> Provider:
    """For the rows of `source`, with its discount; weights do not rest on `hidden` features."""
    if settings.provider == "none":
        return UniformImportance()
    if settings.provider == "column":
        return Column(source.dataset, settings.column)
    columns = telling_features(source.dataset, settings, hidden)
    states = States(source.dataset, source.into_policy_space, source.device, seed, columns)
    if settings.provider == "elite":
        return Elite(states, settings)
    if settings.provider == "batch_seed":
        return BatchSeed(states, settings)
    _check_followed(source, settings)
    kind = Coptd if settings.provider == "coptd" else DualDiceProvider
    return kind.of(states, settings, source.demand.gamma)


def _check_followed(source: OfflineSource, settings: ImportanceSettings) -> None:
    """A policy can be followed through the data."""
    dataset, gamma, place = source.dataset, source.demand.gamma, "source.importance.provider"
    if not isinstance(dataset.spec.action, Box):
        do = "Use elite or column."
        what = f"{settings.provider} needs continuous actions"
        raise ConfigError(place, what, got=dataset.spec.action.describe(), expected="a box", do=do)
    if not 0 <= gamma < 1:
        what = f"{settings.provider} is about discounted visits"
        raise ConfigError(place, what, got=f"gamma {gamma:g}", expected="gamma below 1")
    index = dataset.index
    lost = index.terminated | ~index.final_known
    leading = dataset.steps - int(lost.sum())
    if leading < 2:
        raise DataError(f"dataset '{dataset.name}'", "too few rows lead to a known next state", got=leading)
