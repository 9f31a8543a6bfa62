"""Demonstrations beside own experience: PPO that also clones what others did, less and less.

    L = L(PPO) + w(t)·mean ℓ,  over pairs (s, a) that are drawn from the dataset `demonstrations`
    ℓ = −log π(a|s)         → losses.policy.negative_log_likelihood      (loss=nll)
    ℓ = ‖π(s) − a‖²/A       → losses.policy.squared_distance             (loss=mse, continuous actions)

Its rows have no ratio and no advantage: nobody knows with which probability a demonstrator did what he did, and what he
earned says nothing of this policy. So they never enter PPO's surrogate, its values or its normalisers; they add a term
of their own to the policy's loss. With memory π(a|s) is π(a|s₀ … s), over stretches of episodes; where a stretch begins
inside an episode the memory begins empty there. Weight 0 is PPO to the bit.

Differs from DAPG (Rajeswaran et al. 2018), whose demonstrations also weigh w = λ₀·λ₁ᵗ·max A, in: w is a schedule of its
own (`exponential` is theirs), not scaled by the largest advantage, which here is standardised.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import BuildContext, Demand, Experience, Metrics, Roles
from understudy.core.rng import stream
from understudy.core.schedule import ScheduledWeight
from understudy.core.settings import Settings
from understudy.core.spec import Box, Spec
from understudy.core.state import Static
from understudy.losses.policy import negative_log_likelihood, squared_distance
from understudy.losses.value import mean_over
from understudy.nn.actor import Actor
from understudy.objectives import Evaluation, Weights
from understudy.parts.ppo.batch import PPOBatch
from understudy.parts.ppo.settings import PPOSettings
from understudy.sources.sampling.draws import uniform_rows

ROLE, TERM = "demonstrations", "cloning"


class Config(Settings):
    """A term of behaviour cloning."""

    weight: ScheduledWeight = ScheduledWeight(kind="linear", start=1.0, end=0.0, over=100)
    """w: what cloning counts beside PPO's loss: a number, or a group {start, end, over} in updates."""
    loss: Literal["nll", "mse"] = "nll"
    """`nll`: −log π(a|s). `mse`: the squared distance of the policy's mean, which leaves its σ to PPO."""
    batch_size: int = Field(256, ge=1)
    """Steps of demonstrations that are drawn for every gradient step."""
    length: int = Field(32, ge=1)
    """Of a policy with memory: steps of a stretch; batch_size/length of them are drawn."""


@final
@dataclass
class Demonstrations:
    config: Static[Config]
    data: Static[Experience]
    rng: torch.Generator
    """Draws rows; nobody else draws from it."""
    updates: int = 0

    @property
    def weights(self) -> Weights:
        return Weights(losses={TERM: self.config.weight.at(self.updates)})

    def check(self, policy: Actor, ppo: PPOSettings) -> None:
        """The demonstrations hold what the policy sees."""
        there = self.data.spec.observation
        if missing := sorted({given.group for given in policy.inputs} - there.keys()):
            raise DataError(
                f"datasets.{ROLE}",
                "lack what the policy sees",
                got=f"groups {sorted(there)}",
                expected=f"also {missing}",
                do="Record these, too, or say what the policy sees: algo.actor.sees=….",
            )

    def loss(self, batch: PPOBatch, evaluation: Evaluation) -> dict[str, Tensor]:
        """The mean over demonstrations, the same at every row of the minibatch."""
        with nullcontext() if self.weights.losses[TERM] else torch.no_grad():
            mean = self._cloning(evaluation.policy)
        return {TERM: mean.expand_as(evaluation.log_prob)}

    def learn(self, rollout: Rollout) -> Metrics:
        """Nothing but to count."""
        weight = torch.tensor(self.weights.losses[TERM])
        self.updates += 1
        return {"weight": weight}

    def _cloning(self, policy: Actor) -> Tensor:
        """mean ℓ [] of what is drawn next."""
        config, demand = self.config, Demand(("mask",) if policy.spec.masked else ())
        if not policy.initial(1):
            rows = self.data.rows(uniform_rows(config.batch_size, self.data.steps, self.rng), demand)
            seen = policy.perceive(rows.obs)
            return self._distance(policy, seen, rows.action, rows.extra.get("mask")).mean()
        start = uniform_rows(max(1, config.batch_size // config.length), self.data.steps, self.rng)
        stretch = self.data.windows(start, config.length, demand)
        obs = {name: values.transpose(0, 1) for name, values in stretch.obs.items()}
        seen = policy.perceive(obs, policy.initial(len(start)), stretch.first.T).transpose(0, 1)
        losses = self._distance(policy, seen, stretch.action, stretch.extra.get("mask"))
        return mean_over(losses.flatten(), stretch.valid.flatten())

    def _distance(self, policy: Actor, seen: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        """ℓ [...]."""
        if self.config.loss == "mse":
            return squared_distance(policy.greedy(seen, mask), action)
        return negative_log_likelihood(policy.log_prob(seen, action, mask))


def needs(config: Config) -> Roles:
    return Roles(data=(ROLE,))


def build(config: Config, context: BuildContext) -> Demonstrations:
    data = context.data[ROLE]
    if config.loss == "mse" and not isinstance(context.spec.action, Box):
        raise ConfigError(
            f"algo.objectives.{ROLE}.loss", "is for continuous actions", got="mse", do="Use nll for choices."
        )
    _check_same_world(data.spec, context.spec)
    return Demonstrations(config, data, stream(context.seed, ROLE))


def _check_same_world(data: Spec, env: Spec) -> None:
    """Groups that both have are of one kind, and so are actions; what the policy does not see may be missing."""
    shared = sorted(data.observation.keys() & env.observation.keys())
    kinds = [{name: spec.observation[name] for name in shared} for spec in (data, env)]
    here, there = (Spec(groups, spec.action, spec.masked) for groups, spec in zip(kinds, (data, env), strict=True))
    if not there.fits(here):
        raise DataError(f"datasets.{ROLE}", "are of another world", got=here.describe(), expected=there.describe())
