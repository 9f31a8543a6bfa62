"""Providers by name, each looked over before the first step."""

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.sources.importance.batch_seed import BatchSeed
from understudy.sources.importance.column import Column
from understudy.sources.importance.coptd import Coptd
from understudy.sources.importance.dualdice import DualDiceProvider
from understudy.sources.importance.elite import Elite
from understudy.sources.importance.provider import Provider
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import States, telling_features


def choose_provider(data: LoggedExperience, settings: ImportanceSettings, gamma: float, seed: int) -> Provider:
    """For the rows of `data`, with the policy's discount; weights do not rest on hidden features."""
    if settings.provider == "column":
        return Column(data.dataset, settings.column)
    states = States(data, seed, telling_features(data.dataset, settings, data.transforms.hide_columns))
    if settings.provider == "elite":
        return Elite(states, settings)
    if settings.provider == "batch_seed":
        return BatchSeed(states, settings)
    _check_followed(data.dataset, gamma, settings)
    kind = Coptd if settings.provider == "coptd" else DualDiceProvider
    return kind.of(states, settings, gamma)


def _check_followed(dataset: Dataset, gamma: float, settings: ImportanceSettings) -> None:
    """A policy can be followed through the data."""
    place = "source.importance.provider"
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
