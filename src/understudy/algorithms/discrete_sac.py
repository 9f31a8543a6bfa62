"""Soft actor-critic for discrete actions with masks, after Christodoulou 2019, arXiv:1910.07207.

SAC whose expectations over actions are sums, not draws. In every state only legal actions count, in π, in values and in
how much entropy is asked for. In this order, every update (α is the temperature before it):

    V   = Σ_a π(a|s')·(min_j Q̄_j(s',a) − α·log π(a|s'))         → losses.action_values.soft_expected_value
    y   = r + γ·V, or r where the episode terminated            → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)²                               → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄)                                  → parts.target.Target.follow
    L_π = mean −Σ_a π(a|s)·min_j Q_j(s,a) − α·H(π(·|s))          → losses.action_values.softmax_climb
    H̄   = c·log |legal actions of s|                             → losses.action_values.entropy_of_choices
    L_α = mean log α·(H(π(·|s)) − H̄)                             → losses.soft.temperature_loss

A state with one legal action asks for no entropy and says nothing of α.

Differs from the paper in: masks, and H̄ is each state's own (the paper's is c·log of the number of all actions, which no
policy could reach where few are legal); L_Q has no ½; rewards of n steps and any number of critics are offered; rows
whose successor is unknown (`td_valid` false) are left out of L_Q.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.spec import Discrete
from understudy.core.state import Static
from understudy.losses.action_values import (
    entropy,
    entropy_of_choices,
    legal_or_all,
    soft_expected_value,
    softmax_climb,
    taken,
)
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import ActionValues
from understudy.nn.init import Init
from understudy.nn.perception import Seen
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.optim import Adam
from understudy.parts.soft_critic import SoftCriticSettings
from understudy.parts.target import Target
from understudy.parts.temperature import Temperature
from understudy.parts.value_learning import ValueLearningSettings, actor_adam


class PolicySettings(ActorSettings):
    """What the policy sees, and its shape."""

    init: Init = "default"
    """`default` (torch's Linear), `orthogonal`, `small_output` or `xavier_output`."""


class Config(ValueLearningSettings):
    """Soft actor-critic, discrete actions."""

    name: Literal["discrete_sac"] = "discrete_sac"
    """The algorithm."""
    entropy_weight: float = Field(1.0, gt=0)
    """α, the temperature, at the start: what a nat of entropy is worth, in units of reward."""
    entropy_learning_rate: float = Field(3e-4, ge=0)
    """Adam's step size for log α; 0 leaves it as it is."""
    entropy_target: float = Field(0.98, ge=0, le=1)
    """c: H̄ as a part of the most entropy there can be in a state."""
    actor: PolicySettings = PolicySettings()
    """The policy network."""
    critic: SoftCriticSettings = SoftCriticSettings()
    """The critics, with an output for each action."""


@final
@dataclass
class DiscreteSAC:
    config: Static[Config]
    policy: Actor
    critic: ActionValues
    target: Target[ActionValues]
    policy_optimizer: Adam
    critic_optimizer: Adam
    temperature: Temperature

    @property
    def demand(self) -> Demand:
        masks = ("mask", "next_mask") if self.policy.spec.masked else ()
        return Demand(("td_valid", "discount", *masks), self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        """Nobody can say how large the temperature becomes."""
        return math.inf

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.target.network}

    def multipliers(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature.log_alpha} if self.config.entropy_learning_rate > 0 else {}

    def update(self, data: Transitions) -> Update:
        """One gradient step of Q, of the target critics, of π, and of the temperature."""
        seen, alpha = Seen(data.obs), self.temperature.value()
        metrics, feedback = self._update_critic(data, seen, alpha)
        return Update(metrics | self._update_actor(seen, data.extra.get("mask"), alpha), feedback)

    def _update_critic(self, data: Transitions, seen: Seen, alpha: Tensor) -> Update:
        config, valid = self.config, data.extra["td_valid"]
        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, self._next_value(data, alpha))
        q = taken(self.critic.every(seen.by(self.critic)), data.action)
        loss = mean_over(weigh(squared_error(q, target), data.extra.get(SAMPLE_WEIGHT)), valid).sum()
        self.critic_optimizer.minimise(loss, config.critic_learning_rate)
        self.target.follow(self.critic, config.polyak)
        metrics = {"loss/critic": loss.detach(), "value/q": q.detach().mean()}
        return Update(metrics, {PRIORITY: absolute_error(q, target, valid)})

    @torch.no_grad()
    def _next_value(self, data: Transitions, alpha: Tensor) -> Tensor:
        """V [B], by the target critics."""
        seen_next, critics = Seen(data.next_obs), self.target.network
        mask = legal_or_all(data.extra["next_mask"]) if self.policy.spec.masked else None
        logits = self.policy.features(seen_next.by(self.policy), mask)
        return soft_expected_value(logits, critics.every(seen_next.by(critics)).amin(0), alpha)

    def _update_actor(self, seen: Seen, mask: Tensor | None, alpha: Tensor) -> Metrics:
        """π climbs critics that hold still."""
        config = self.config
        with torch.no_grad():
            q = self.critic.every(seen.by(self.critic)).amin(0)
        logits = self.policy.features(seen.by(self.policy), mask)
        loss = softmax_climb(logits, q, alpha).mean()
        self.policy_optimizer.minimise(loss, config.actor_learning_rate)
        logits = logits.detach()
        spread, most = entropy(logits), entropy_of_choices(logits, mask)
        if config.entropy_learning_rate > 0:
            self.temperature.follow(-spread, config.entropy_target * most, config.entropy_learning_rate)
        return {
            "loss/actor": loss.detach(),
            "policy/entropy": spread.mean(),
            "policy/entropy_missing": (config.entropy_target * most - spread).mean(),
            "policy/temperature": alpha,
        }


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Discrete,), sources=("replay", "offline"), slices=True)


def build(config: Config, context: BuildContext) -> DiscreteSAC:
    builder = NetworkBuilder.of(context)
    critic = builder.action_values(config.critic, members=config.critics, quantiles=1, one_hot=False)
    policy = builder.actor(config.actor, critic=critic)
    return DiscreteSAC(
        config,
        policy,
        critic,
        Target.of(critic),
        actor_adam(policy, config, context),
        adam_for(critic, config.critic_optimizer, context),
        Temperature.starting_at(config.entropy_weight, context.device, config.critic_warmup),
    )
