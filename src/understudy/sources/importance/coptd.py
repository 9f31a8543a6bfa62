"""States the policy visits oftener than the data do count more, found by following it step by step (COP-TD).

w is 1 at first. One step: numerator = next states, each with mass γ·w(s)·π(a|s)/β̂(a|s), and initial states with the
rest (`ratios.visitation.flow`); denominator = states of the data; w = their ratio. A few steps go far enough.
"""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed
from understudy.core.state import Static
from understudy.ratios import clip, normalise
from understudy.ratios.visitation import Flow, flow
from understudy.sources.importance.behaviour import Behaviour
from understudy.sources.importance.fitting import fit_states
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import States, Visits

INITIAL_SHARE = 4
"""One initial state for so many rows, at most: their mass is small."""


@final
@dataclass
class Coptd:
    states: Static[States]
    settings: Static[ImportanceSettings]
    gamma: Static[float]
    behaviour: Behaviour
    timing: Static[Literal["later"]] = "later"

    @classmethod
    def of(cls, states: States, settings: ImportanceSettings, gamma: float) -> "Coptd":
        return cls(states, settings, gamma, Behaviour.of(states, settings.behaviour))

    def weigh(self, policy: Policy, number: int) -> Tensor:
        settings = self.settings
        if not self.behaviour.learned:
            self.behaviour.learn(settings.where)
        visits = self.states.some(settings.rows, f"{number}/rows")
        initial = self.states.initial(max(settings.rows // INITIAL_SHARE, 1), f"{number}/initial").states
        ratios = self.behaviour.ratios(visits, policy, settings.ratio_ceiling)
        weights = torch.ones(len(ratios), dtype=torch.float64)
        for iteration in range(settings.iterations):
            moved = self._flow(visits, weights, ratios)
            numerator, mass = gathered(moved, self.states.vectors(visits.rows.next_obs), initial)
            seed = derived_seed(self.states.seed, "importance", number, iteration)
            fitted = fit_states(settings, numerator, visits.states, seed, mass)
            weights = clip(normalise(fitted.plain(visits.states, settings.high)), 0.0, settings.high)
        return self.states.everywhere(fitted)

    def _flow(self, visits: Visits, weights: Tensor, ratios: Tensor) -> Flow:
        try:
            return flow(weights, ratios, self.gamma, visits.ends, known=visits.known)
        except DataError as error:
            do = "Raise source.importance.behaviour.smallest_sigma, or start refreshing later: source.importance.every."
            raise DataError(self.settings.where, f"nothing to follow: {error}", do=do) from error


def gathered(moved: Flow, successors: Tensor, initial: Tensor) -> tuple[Tensor, Tensor]:
    """States [n, d] that the policy is in one step later, initial ones [m, d] among them, and their mass [n]."""
    led = moved.successors > 0
    restarts = (moved.restarts / len(initial)).expand(len(initial))
    return torch.cat([successors[led], initial]), torch.cat([moved.successors[led], restarts])
