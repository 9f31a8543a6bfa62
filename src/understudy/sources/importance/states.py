"""States of a dataset's rows as vectors: some of them, initial ones, or all in bounded memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import Obs, Transitions
from understudy.core.errors import DataError
from understudy.core.protocols import Demand, Policy
from understudy.core.rng import stream
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.sampling.draws import rows_without_replacement

CHUNK_ROWS = 1 << 14
NEGLIGIBLE = 1e-7
FACTS = Demand(("td_valid",))


@final
@dataclass(frozen=True)
class Visits:
    """Some rows (s, a, s') of a dataset."""

    rows: Transitions
    """Actions in [-1, 1]."""
    states: Tensor
    """s as vectors [n, d], float64, on the CPU."""

    @property
    def ends(self) -> Tensor:
        """Where the episode terminated [n]."""
        return self.rows.terminated.cpu()

    @property
    def known(self) -> Tensor:
        """Where s' is the true successor, or none is needed [n]."""
        return self.rows.extra["td_valid"].cpu()


@final
@dataclass(frozen=True)
class States:
    """Reads a dataset. Row numbers are drawn from streams of their own, named by what they are for."""

    data: LoggedExperience
    seed: int
    columns: Tensor
    """The numbers [d] of those features of a state that weights may rest on."""

    @property
    def dataset(self) -> Dataset:
        return self.data.dataset

    def some(self, most: int, name: str, among: Tensor | None = None) -> Visits:
        """At most so many rows, no row twice, out of all or of those `among` [k]."""
        count = self.dataset.steps if among is None else len(among)
        drawn = rows_without_replacement(most, count, stream(self.seed, f"importance/{name}"))
        return self.at(drawn if among is None else among[drawn])

    def initial(self, most: int, name: str) -> Visits:
        """First steps of at most so many episodes."""
        return self.some(most, name, torch.from_numpy(self.dataset.index.starts))

    def at(self, index: Tensor) -> Visits:
        """Rows `index` [n]."""
        rows = self.rows(index)
        self.dataset.release()
        return Visits(rows, self.vectors(rows.obs))

    def left_out(self) -> dict[str, tuple[int, ...]]:
        """Columns of vector groups that do not count, by number."""
        counts, found, first = set(self.columns.tolist()), {}, 0
        for name, group in self.dataset.spec.observation.items():
            left = tuple(number for number in range(group.size) if first + number not in counts)
            if left and len(group.shape) == 1:
                found[name] = left
            first += group.size
        return found

    def vectors(self, obs: Obs) -> Tensor:
        """What counts of observations [n, …] as one vector each [n, d], float64, on the CPU."""
        return all_features(obs).index_select(1, self.columns)

    def rows(self, index: Tensor) -> Transitions:
        """Rows `index` [n] as a batch, actions in [-1, 1]."""
        return self.data.rows(index, FACTS)

    def everywhere(self, evaluate: Callable[[Tensor], Tensor]) -> Tensor:
        """`evaluate` [n, d] → [n] of the states of all rows [steps], some at a time."""
        found = torch.empty(self.dataset.steps, dtype=torch.float64)
        for first in range(0, len(found), CHUNK_ROWS):
            part = found[first : first + CHUNK_ROWS]
            part.copy_(evaluate(self.at(torch.arange(first, first + len(part))).states))
        return found

    def greedy(self, policy: Policy, rows: Transitions, obs: Obs) -> Tensor:
        """What the policy does in `obs` [n], one of both observations of `rows`: actions [n, A] in [-1, 1]."""
        action, _ = policy.act(obs, policy.initial(len(rows.reward)), greedy=True)
        asked = replace(rows, action=action.to(self.data.device), extra={})
        return self.data.into_policy_space(asked).action.double().cpu()


def all_features(obs: Obs) -> Tensor:
    """All groups of observations [n, …], in the spec's order, as one vector each [n, d], float64."""
    return torch.cat([values.flatten(1).double().cpu() for values in obs.values()], dim=1)


def telling_features(dataset: Dataset, settings: ImportanceSettings, hidden: Mapping[str, Sequence[int]]) -> Tensor:
    """The numbers [d] of those features that are not hidden, and take more than one value in the data."""
    moments = dataset.moments()
    seen, still, first = [], [], 0
    for name, group in dataset.spec.observation.items():
        mean, std = moments[name].mean.flatten(), moments[name].std.flatten()
        unseen = {number % group.size for number in hidden.get(name, ())}
        shown = torch.tensor([number not in unseen for number in range(group.size)])
        constant = (std <= NEGLIGIBLE * mean.abs()) & shown
        seen.append((shown & ~constant).nonzero()[:, 0] + first)
        still += [first + int(number) for number in constant.nonzero()[:, 0]]
        first += group.size
    found = torch.cat(seen)
    if not len(found):
        raise DataError(settings.where, "all states are the same: nothing to weigh them by")
    if still and not settings.leave_out_constant:
        told = f"columns {still[:8]}" + (" and more" if len(still) > 8 else "") + f" of {first}"
        do = "Set source.importance.leave_out_constant=true to fit without them."
        raise DataError(settings.where, "constant features", got=told, do=do)
    return found
