"""Behaviour cloning (BC): do what the data did.

    L(π) = mean −log π(a|s)              → losses.policy.negative_log_likelihood
    L(π) = mean ‖π(s) − a‖²/A            → losses.policy.squared_distance      (actor.head=deterministic)
    L(π) = Σ wᵢ·Lᵢ / Σ wᵢ                → losses.weights.weighted_mean        (weights=<a column>)

Discrete actions: a categorical policy, which gives forbidden actions probability 0 where the data has masks.

Differs from the usual code in: nothing of substance. The default head is IQL's Gaussian, so that BC is IQL
with β = 0 and a constant learning rate.
"""

from dataclasses import dataclass
from typing import Literal, final

from pydantic import Field
from torch import nn

from understudy.core.batch import Transitions
from understudy.core.protocols import BuildContext, Demand, Needs, Update
from understudy.core.rng import stream
from understudy.core.settings import Settings
from understudy.core.spec import Box, Discrete
from understudy.core.state import Static
from understudy.losses.policy import negative_log_likelihood, squared_distance
from understudy.losses.weights import weighted_mean
from understudy.nn.actor import Actor, ActorSettings
from understudy.parts.optim import Adam


class Config(Settings):
    """Behaviour cloning."""

    name: Literal["bc"] = "bc"
    """The algorithm."""
    learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size."""
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

    @property
    def demand(self) -> Demand:
        masks = ("mask",) if self.policy.spec.masked else ()
        return Demand((*masks, self.config.weights) if self.config.weights else masks)

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy}

    def update(self, data: Transitions) -> Update:
        """One gradient step."""
        state = self.policy.view(data.obs)
        if self.config.actor.head == "deterministic" and not self.policy.discrete:
            losses = squared_distance(self.policy.head.mode(self.policy.features(state)), data.action)
        else:
            log_prob = self.policy.log_prob(state, data.action, data.extra.get("mask"))
            losses = negative_log_likelihood(log_prob)
        weights = self.config.weights
        loss = weighted_mean(losses, data.extra[weights].float()) if weights else losses.mean()
        self.policy_optimizer.minimise(loss, self.config.learning_rate)
        return Update({"loss/actor": loss.detach()})


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box, Discrete), sources=("offline",))


def build(config: Config, context: BuildContext) -> BC:
    policy = Actor(context.spec, context.moments, config.actor, stream(context.seed, "init/actor"))
    policy.to(context.device)
    return BC(config, policy, Adam.over(policy.parameters()))
