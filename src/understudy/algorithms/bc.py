"""Behaviour cloning (BC): do what the data did.

    L(π) = mean −log π(a|s)              → losses.policy.negative_log_likelihood
    L(π) = mean ‖π(s) − a‖²/A            → losses.policy.squared_distance      (actor.distribution=deterministic)
    L(π) = Σ wᵢ·Lᵢ / Σ wᵢ                → losses.weights.weighted_mean        (weights=<a column>)

Discrete actions: a categorical policy, which gives forbidden actions probability 0 where the data has masks. With
memory (actor.memory) π(a|s) is π(a|s₀ … s), and it learns from whole stretches of episodes (source.kind=sequences);
where a stretch begins inside an episode, the memory begins empty there. Where a teacher labels what the student itself
meets (source.kind=interactive), it is DAgger: understudy explain dagger.

Differs from the usual code in: nothing of substance. The default distribution is IQL's Gaussian, so that BC is IQL
with β = 0 and a constant learning rate.
"""

from dataclasses import dataclass
from typing import Literal, final

from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import Sequences, Transitions
from understudy.core.protocols import MAIN, BuildContext, Demand, Needs, Update
from understudy.core.settings import Settings
from understudy.core.spec import Box, Discrete
from understudy.core.state import Static
from understudy.losses.policy import negative_log_likelihood, squared_distance
from understudy.losses.value import mean_over
from understudy.losses.weights import weighted_mean
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.distributions.gaussians import Deterministic
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.optim import Adam, OptimizerSettings


class Config(Settings):
    """Behaviour cloning."""

    name: Literal["bc"] = "bc"
    """The algorithm."""
    learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""
    weights: str = ""
    """A further column of the data: each row counts in proportion to it."""
    actor: ActorSettings = ActorSettings()
    """The policy network."""


@final
@dataclass
class BC:
    config: Static[Config]
    policy: Actor
    policy_optimizer: Adam
    running: Static[bool]
    """Observations are normalised by what was learned from so far, as no dataset says what they are like."""

    @property
    def demand(self) -> Demand:
        masks, weights = ("mask",) if self.policy.spec.masked else (), self.config.weights
        return Demand((*masks, weights) if weights else masks, weights=weights)

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy}

    def update(self, data: Transitions | Sequences) -> Update:
        """One gradient step."""
        if self.running:
            self.policy.perception.observe(data.obs, data.valid if isinstance(data, Sequences) else None)
        action = data.action
        state = self._remembered(data) if isinstance(data, Sequences) else self.policy.perception.look(data.obs)
        if isinstance(self.policy.distribution, Deterministic):
            losses = squared_distance(self.policy.greedy(state), action)
        else:
            losses = negative_log_likelihood(self.policy.log_prob(state, action, data.extra.get("mask")))
        loss = self._mean(losses, data)
        self.policy_optimizer.minimise(loss, self.config.learning_rate)
        return Update({"loss/actor": loss.detach()})

    def _remembered(self, data: Sequences) -> Tensor:
        """What is seen and remembered [B, L, size]; memories run along time first."""
        obs = {name: values.transpose(0, 1) for name, values in data.obs.items()}
        carry = self.policy.initial(len(data.first))
        return self.policy.perception.sequence(obs, carry, data.first.T).transpose(0, 1)

    def _mean(self, losses: Tensor, data: Transitions | Sequences) -> Tensor:
        """Over rows [B], or over those of stretches [B, L] that an episode still had."""
        weights = data.extra[self.config.weights].float() if self.config.weights else None
        if isinstance(data, Transitions):
            return losses.mean() if weights is None else weighted_mean(losses, weights)
        if weights is None:
            return mean_over(losses.flatten(), data.valid.flatten())
        return weighted_mean(losses.flatten(), (weights * data.valid).flatten())


def needs(config: Config) -> Needs:
    if config.actor.memory.kind != "none":
        return Needs(Sequences, actions=(Box, Discrete), sources=("sequences", "interactive"), compiles=False)
    return Needs(Transitions, actions=(Box, Discrete), sources=("offline", "interactive"), slices=True)


def build(config: Config, context: BuildContext) -> BC:
    policy = NetworkBuilder.of(context, memory=True).actor(config.actor)
    return BC(config, policy, adam_for(policy, config.optimizer, context), MAIN not in context.data)
