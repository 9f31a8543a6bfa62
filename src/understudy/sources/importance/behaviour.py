"""Who acted in the data: a Gaussian policy fitted to it once, and how much likelier another takes the same actions."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.rng import stream
from understudy.core.state import Static
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.distributions.gaussians import TanhMeanGaussian
from understudy.nn.dropout import eval_mode
from understudy.sources.importance.settings import BehaviourSettings
from understudy.sources.importance.states import States, Visits
from understudy.sources.sampling.draws import uniform_rows

SPREAD_ROWS = 10_000


@final
@dataclass
class Behaviour:
    """β̂(a|s) = N(f(s), σ)."""

    states: Static[States]
    settings: Static[BehaviourSettings]
    actor: Actor
    learned: bool = False

    @classmethod
    def of(cls, states: States, settings: BehaviourSettings) -> "Behaviour":
        shape = ActorSettings(hidden=settings.hidden, hide=states.left_out())
        rng = stream(states.seed, "importance/behaviour/init")
        actor = Actor(states.dataset.spec, shape, rng)
        actor.perception.fit(states.dataset.moments(), states.dataset.steps)
        return cls(states, settings, actor.to(states.data.device))

    def learn(self, where: str) -> None:
        """By likelihood, from streams of its own: whenever it happens, the same comes out."""
        rng = stream(self.states.seed, "importance/behaviour/rows")
        optimizer = torch.optim.Adam(self.actor.parameters(), lr=self.settings.learning_rate, fused=True)
        for _ in range(self.settings.updates):
            index = uniform_rows(self.settings.batch_size, self.states.dataset.steps, rng)
            rows = self.states.rows(index)
            loss = -self.actor.log_prob(self.actor.perception.look(rows.obs), rows.action).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        reached = float(loss.detach())
        if not math.isfinite(reached):
            raise DataError(where, "the behaviour model did not learn", got=f"loss {reached:g}")
        self._settle_spread()
        self.learned = True

    @torch.no_grad()
    def _settle_spread(self) -> None:
        """σ of greatest likelihood given the means, which gradient steps would be long in reaching."""
        visits = self.states.some(SPREAD_ROWS, "behaviour/spread")
        missed = visits.rows.action - self._mean(visits)
        spread = missed.square().mean(0).clamp(min=1e-12).log() / 2
        limits = self._gaussian.limits
        self._gaussian.log_std.copy_(spread.clamp(limits.low, limits.high))

    @torch.no_grad()
    def ratios(self, visits: Visits, policy: Policy, ceiling: float) -> Tensor:
        """π(a|s)/β̂(a|s) [n], float64, at most `ceiling`.

        A policy only says what it would do. π is taken as a Gaussian around that, as wide as β̂: of two Gaussians of one
        σ, log π/β̂ = Σ ((a − f(s))² − (a − π(s))²)/2σ².
        """
        rows, sigma = visits.rows, self.sigma
        action = rows.action.double().cpu()
        from_data = (action - self._mean(visits).double().cpu()) / sigma
        from_policy = (action - self.states.greedy(policy, rows, rows.obs)) / sigma
        logs = (from_data.square() - from_policy.square()).sum(1) / 2
        return logs.clamp(max=math.log(ceiling)).exp()

    @property
    def sigma(self) -> Tensor:
        """Of each action dimension [A], float64."""
        return self._gaussian.log_std.detach().double().cpu().exp().clamp(min=self.settings.smallest_sigma)

    def _mean(self, visits: Visits) -> Tensor:
        with eval_mode(self.actor):
            return self.actor.greedy(self.actor.perception.look(visits.rows.obs))

    @property
    def _gaussian(self) -> TanhMeanGaussian:
        distribution = self.actor.distribution
        assert isinstance(distribution, TanhMeanGaussian)
        return distribution
