"""Implicit Q-learning (IQL), Kostrikov, Nair and Levine 2021, arXiv:2110.06169.

Learns the value of the best actions *in the data* without ever asking about others, then clones those actions.
In this order, every update (L₂^τ is the expectile loss, ω the advantage weight):

    L_V = mean L₂^τ( min_j Q̄_j(s,a) − V(s) )                         → losses.value.expectile_loss
    A   = min_j Q̄_j(s,a) − V(s),  ω = exp(min(β·A, ln ω_max))        → losses.weights.awr_weights
    L_π = mean −ω·log π(a|s)                                          → losses.policy.weighted_negative_log_likelihood
    y   = r + γ·V(s'), or r where the episode terminated              → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)²                                    → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄)                                       → parts.target.Target.follow

Discrete actions are the same with a value per action and a categorical policy; where the data has masks, forbidden
actions have probability 0. V and Q need none: they are only asked about actions that were taken.

A and y use V *after* its step, as the authors' JAX code does (CORL and d3rlpy use V before it; same fixed point).

Differs from the paper in: rows whose successor is unknown (`td_valid` false) are left out of L_Q instead of being
dropped from the data; n-step returns and other numbers of critics are offered. Defaults are the paper's for locomotion,
except that rewards are scaled only if the run asks for it (data.reward) and observations are normalised unless it asks
not to. The settings of ω stand in parts.advantage_weighting.
"""

from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Needs, Update
from understudy.core.spec import Box, Discrete
from understudy.core.state import Static
from understudy.losses.policy import weighted_negative_log_likelihood
from understudy.losses.value import absolute_error, bootstrap_target, expectile_loss, mean_over, squared_error
from understudy.losses.weights import effective_sample_size, weigh
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import Critic, CriticSettings
from understudy.nn.perception import Seen
from understudy.nn.value_network import ValueNetwork
from understudy.parts.advantage_weighting import (
    WeightingSettings,
    advantage_weights,
    share_at_ceiling,
    warn_if_known_to_be_wrong,
)
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.optim import Adam, OptimizerSettings
from understudy.parts.target import Target
from understudy.parts.value_learning import ValueLearningSettings, actor_adam


class Config(WeightingSettings, ValueLearningSettings):
    """Implicit Q-learning."""

    name: Literal["iql"] = "iql"
    """The algorithm."""
    expectile: float = Field(0.7, gt=0, lt=1)
    """τ: 0.5 values the data's average action, toward 1 its best."""
    actor_optimizer: OptimizerSettings = OptimizerSettings(schedule="cosine")
    """Its kind, weight decay, gradient clipping and schedule: to 0 over the run's `updates`, as the authors."""
    value_learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size for V."""
    value_optimizer: OptimizerSettings = OptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""
    actor: ActorSettings = ActorSettings()
    """The policy network."""
    critic: CriticSettings = CriticSettings()
    """The critics and the value network."""
    critic_input: Literal["heads", "onehot"] = "heads"
    """Of discrete critics: an output for each action, or the action as a further input, as others have it."""


@final
@dataclass
class IQL:
    config: Static[Config]
    policy: Actor
    value: ValueNetwork
    critic: Critic
    target: Target[Critic]
    policy_optimizer: Adam
    value_optimizer: Adam
    critic_optimizer: Adam

    @property
    def demand(self) -> Demand:
        masks = ("mask",) if self.policy.spec.masked else ()
        return Demand(("td_valid", "discount", *masks), self.config.n_step, self.config.gamma, priorities=True)

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "value": self.value, "critic": self.critic, "target_critic": self.target.network}

    def update(self, data: Transitions) -> Update:
        """One gradient step of V, π and Q, in that order, and of the target critics."""
        config, row_weight = self.config, data.extra.get(SAMPLE_WEIGHT)
        seen, seen_next = Seen(data.obs), Seen(data.next_obs)
        q_target = self.target.network(seen.by(self.target.network), data.action).amin(0)

        value_losses = expectile_loss(self.value(seen.by(self.value)), q_target, config.expectile)
        value_loss = weigh(value_losses, row_weight).mean()
        self.value_optimizer.minimise(value_loss, config.value_learning_rate)

        with torch.no_grad():
            value, next_value = self.value(torch.cat([seen.by(self.value), seen_next.by(self.value)])).chunk(2)
        advantage = q_target - value
        weight = advantage_weights(advantage, config)
        log_prob = self.policy.log_prob(seen.by(self.policy), data.action, data.extra.get("mask"))
        actor_loss = weighted_negative_log_likelihood(log_prob, weight).mean()
        self.policy_optimizer.minimise(actor_loss, config.actor_learning_rate)

        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, next_value)
        q = self.critic(seen.by(self.critic), data.action)
        critic_loss = mean_over(weigh(squared_error(q, target), row_weight), data.extra["td_valid"]).sum()
        self.critic_optimizer.minimise(critic_loss, config.critic_learning_rate)
        self.target.follow(self.critic, config.polyak)

        metrics = {
            "loss/value": value_loss.detach(),
            "loss/actor": actor_loss.detach(),
            "loss/critic": critic_loss.detach(),
            "value/q": q.detach().mean(),
            "value/advantage": advantage.mean(),
            "weight/effective_share": effective_sample_size(weight) / len(weight),
            "weight/clipped_share": share_at_ceiling(advantage, config),
        }
        return Update(metrics, {PRIORITY: absolute_error(q, target, data.extra["td_valid"])})


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box, Discrete), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> IQL:
    warn_if_known_to_be_wrong(config)
    builder = NetworkBuilder.of(context)
    critic = builder.critic(config.critic, members=config.critics, one_hot=config.critic_input == "onehot")
    policy, value = builder.actor(config.actor, critic=critic), builder.value(config.critic)
    return IQL(
        config,
        policy,
        value,
        critic,
        Target.of(critic),
        actor_adam(policy, config, context),
        adam_for(value, config.value_optimizer, context),
        adam_for(critic, config.critic_optimizer, context),
    )
