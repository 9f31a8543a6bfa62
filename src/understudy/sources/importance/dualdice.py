"""States the policy visits oftener than the data do count more, found by one linear system (DualDICE). Experimental.

ν(s,a) is linear in random Fourier features; `ratios.visitation.dual_dice` gives w(s,a), and a ridge regression on
features of s its mean w(s) under the data's actions. The policy acts greedily here: no behaviour model is needed.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.rng import stream
from understudy.core.state import Static
from understudy.ratios import median_distance
from understudy.ratios.scaling import Scaling
from understudy.ratios.visitation import dual_dice
from understudy.sources.importance.fitting import varying_columns
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import States, Visits


@final
@dataclass(frozen=True)
class FourierFeatures:
    """√(2/k)·cos(Wx + b) of scaled rows [n, d], whose products are nearly Gaussian kernels, and a constant [n, k+1]."""

    columns: Tensor
    scaling: Scaling
    directions: Tensor
    phases: Tensor
    constant: float

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, count: int, constant: float, rng: torch.Generator) -> Self:
        """As wide as the median distance of rows [n, d], of which only `columns` [d'] count."""
        scaling = Scaling.of(rows[:, columns])
        width = median_distance(scaling.apply(rows[:, columns]), rng)
        directions = torch.randn(len(columns), count, dtype=torch.float64, generator=rng) / width
        phases = 2 * math.pi * torch.rand(count, dtype=torch.float64, generator=rng)
        return cls(columns, scaling, directions, phases, constant)

    def __call__(self, rows: Tensor) -> Tensor:
        waves = torch.cos(self.scaling.apply(rows[:, self.columns]) @ self.directions + self.phases)
        constant = torch.full((len(rows), 1), self.constant, dtype=torch.float64)
        return torch.cat([waves * math.sqrt(2 / len(self.phases)), constant], dim=1)


@final
@dataclass
class DualDiceProvider:
    states: Static[States]
    settings: Static[ImportanceSettings]
    gamma: Static[float]
    timing: Static[Literal["later"]] = "later"

    @classmethod
    def of(cls, states: States, settings: ImportanceSettings, gamma: float) -> "DualDiceProvider":
        warnings.warn(f"{settings.where}: experimental, watch importance/effective_share", stacklevel=2)
        return cls(states, settings, gamma)

    def weigh(self, policy: Policy, number: int) -> Tensor:
        visits = self.states.some(self.settings.rows, f"{number}/rows")
        initial = self.states.initial(self.settings.rows, f"{number}/initial")
        pairs = self._ratios_of_pairs(visits, initial, policy, number)
        columns = varying_columns(visits.states, self.settings)
        rng = stream(self.states.seed, f"importance/{number}/state features")
        features = FourierFeatures.of(visits.states, columns, self.settings.features, 1.0, rng)
        found = regression(features(visits.states)[visits.known], pairs[visits.known], self.settings.ridge)
        weights = self.states.everywhere(lambda states: (features(states) @ found).clamp(min=0))
        if not bool((weights > 0).any()):
            raise DataError(self.settings.where, "no state has a weight above 0", do="Raise source.importance.ridge.")
        return weights

    def _ratios_of_pairs(self, visits: Visits, initial: Visits, policy: Policy, number: int) -> Tensor:
        """w(s,a) [n] of the data's states and actions."""
        rows = visits.rows
        here = torch.cat([visits.states, rows.action.double().cpu()], dim=1)
        after = torch.cat([self.states.vectors(rows.next_obs), self.states.greedy(policy, rows, rows.next_obs)], dim=1)
        first = torch.cat([initial.states, self.states.greedy(policy, initial.rows, initial.rows.obs)], dim=1)
        rng = stream(self.states.seed, f"importance/{number}/features")
        columns = varying_columns(here, self.settings)
        # Under Δ = φ − γφ' the constant becomes 1, which makes w average 1.
        features = FourierFeatures.of(here, columns, self.settings.features, 1 / (1 - self.gamma), rng)
        before = features(here)
        solved = dual_dice(
            before,
            features(after),
            features(first),
            self.gamma,
            ridge=self.settings.ridge * float(before[:, :-1].square().mean()),
            mass=visits.known.double(),
            ends=visits.ends,
        )
        return solved.weights


def regression(features: Tensor, values: Tensor, ridge: float) -> Tensor:
    """Coefficients [k] of a ridge regression of values [n] on features [n, k]."""
    square = features.T @ features / len(features)
    level = float(features[:, :-1].square().mean())
    system = square + ridge * level * torch.eye(len(square), dtype=torch.float64)
    found: Tensor = torch.linalg.solve(system, features.T @ values / len(features))
    return found
