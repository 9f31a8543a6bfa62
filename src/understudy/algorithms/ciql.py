"""Conservative implicit Q-learning (CIQL): this library's own definition, after a course project; there is no paper.

IQL (arXiv:2110.06169) whose critics also learn to rate the data's actions above others, as in CQL (arXiv:2006.04779).
In this order, every update (L₂^τ is the expectile loss, ω the advantage weight):

    L_V = mean L₂^τ( min_j Q̄_j(s,a) − V(s) )                         → losses.value.expectile_loss
    A   = min_j Q̄_j(s,a) − V(s),  ω = exp(min(β·A, ln ω_max))        → losses.weights.awr_weights
    L_π = mean −ω·log π(a|s)                                          → losses.policy.weighted_negative_log_likelihood
    y   = r + γ·V(s'), or r where the episode terminated              → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)² + α·P_j                            → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄)                                       → parts.target.Target.follow

P is one of
    cql_h      mean over rows of log ∫ exp Q(s,·) − Q(s,a)            → losses.conservative.cql_h_gap
               of discrete actions, log Σ over the legal ones         → losses.conservative.exact_gap
    mean_gap   mean over rows of the mean of Q(s,·) − Q(s,a)          → losses.conservative.mean_gap
    relu_mean  max(0, mean Q(s,a⁻) − mean Q(s,a)) of a whole batch    → losses.conservative.relu_mean

and with `extraction=ddpg_bc` π climbs Q near the data, as TD3+BC's does (λ = climb_weight/mean|Q|, A dimensions):

    L_π = mean −log π(a|s)/A − λ·min_j Q_j(s,π(s))                    → losses.policy.penalised_climb

in discrete actions with Σ_a π(a|s)·min_j Q_j(s,a) over legal ones in the place of Q(s,π(s)), and A = 1. With
`extraction=greedy_support` π learns the best discrete action that a clone β̂ of the data finds common enough:

    L_π = mean −log π(a*|s),  a* = argmax min_j Q̄_j(s,a) over β̂(a|s) ≥ share·max β̂(·|s)  → losses.support.supported

Differs from IQL in α·P and extraction alone: with α = 0 and `awr` it *is* IQL, to the bit. Differs from CQL in: no
action but the data's is ever backed up; log ∫ is sampled around π's action with a width of our own (`parts.negatives`),
as IQL's policies have no density on the box. Differs from the project in its defaults (there α 1, τ .8, β 1, relu_mean
with the dataset's actions, softmax weights of positive advantages, a density that forgets tanh, a policy that waits for
1000 updates): all can be set, and those that are wrong warn.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.settings import Count
from understudy.core.spec import Box, Discrete
from understudy.core.state import Static
from understudy.losses.conservative import cql_h_gap, exact_gap, mean_gap, relu_mean
from understudy.losses.policy import weighted_negative_log_likelihood
from understudy.losses.value import absolute_error, bootstrap_target, expectile_loss, mean_over, squared_error
from understudy.losses.weights import effective_sample_size, weigh
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import ActionValues, Critic, CriticSettings
from understudy.nn.perception import Seen
from understudy.nn.value_network import ValueNetwork
from understudy.parts.advantage_weighting import (
    KNOWN_TO_BE_WRONG,
    WeightingSettings,
    advantage_weights,
    share_at_ceiling,
    warn_if_known_to_be_wrong,
)
from understudy.parts.cloning import ClonedPolicy
from understudy.parts.extraction import behaviour_models, climb, clone_best, raw_log_prob, refuse_choices
from understudy.parts.negatives import around_policy, other_rows_values, uniform_values
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.optim import Adam, OptimizerSettings
from understudy.parts.proposals import Proposals
from understudy.parts.soft_critic import values_of_many
from understudy.parts.target import Target
from understudy.parts.value_learning import ValueLearningSettings, actor_adam


class Config(WeightingSettings, ValueLearningSettings):
    """Implicit Q-learning with a conservative penalty; this library's own definition."""

    FORMER: ClassVar = {**ValueLearningSettings.FORMER, "actor_delay": "critic_warmup"}
    name: Literal["ciql"] = "ciql"
    """The algorithm."""
    alpha: float = Field(0.1, ge=0)
    """Weight of the penalty: 0 is IQL. With `awr` it bends values toward how common an action is: keep it small."""
    penalty: Literal["cql_h", "mean_gap", "relu_mean"] = "cql_h"
    """`cql_h`: CQL's soft maximum. `mean_gap`: the mean over uniform actions. `relu_mean`: one number for a batch,
    without slope once the means have crossed; kept to reproduce others, with a warning."""
    negatives: Literal["uniform", "dataset"] = "uniform"
    """What `relu_mean` compares with: uniform actions, or those of other rows of the batch."""
    sampled_actions: Count = 10
    """N: continuous actions of each kind that a penalty draws for a row. Discrete uniform ones are all counted."""
    extraction: Literal["awr", "ddpg_bc", "greedy_support"] = "awr"
    """`awr` clones good actions of the data; `ddpg_bc` climbs the critics and stays near the data, as TD3+BC;
    `greedy_support` takes the best of the discrete actions that are common in the data, as BCQ."""
    climb_weight: float = Field(2.5, ge=0)
    """Weight of the (normalised) value against cloning in `ddpg_bc`: 0 is behaviour cloning."""
    support_share: float = Field(0.3, ge=0, le=1)
    """Of `greedy_support`: how likely an action must be, against the likeliest. 0 allows all, 1 the likeliest alone."""
    policy: Literal["exact", "raw_seed"] = "exact"
    """`raw_seed` forgets tanh where actions are cloned (with actor.distribution=tanh_gaussian), so that 0.8 is acted as
    tanh(0.8) = 0.66. Kept to reproduce others, with a warning."""
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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.negatives == "dataset" and self.penalty != "relu_mean":
            raise ValueError(f"negatives=dataset is for penalty=relu_mean; {self.penalty} does not read it")
        if self.policy == "raw_seed" and (self.extraction != "awr" or self.actor.distribution.kind != "tanh_gaussian"):
            raise ValueError("policy=raw_seed needs extraction=awr and actor.distribution=tanh_gaussian")
        return self


@final
@dataclass
class CIQL:
    config: Static[Config]
    policy: Actor
    value: ValueNetwork
    critic: Critic
    target: Target[Critic]
    policy_optimizer: Adam
    value_optimizer: Adam
    critic_optimizer: Adam
    proposals: Proposals
    behaviour: list[ClonedPolicy]
    """β̂ of `greedy_support`; other extractions have none."""

    @property
    def demand(self) -> Demand:
        masks = ("mask",) if self.policy.spec.masked else ()
        return Demand(("td_valid", "discount", *masks), self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        """The penalty moves critics as far as it has weight; without it this is IQL."""
        return math.inf if self.config.alpha > 0 else 0.0

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
        metrics = self._extract(data, seen, q_target - value)

        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, next_value)
        state = seen.by(self.critic)
        q = self.critic(state, data.action)
        critic_loss = mean_over(weigh(squared_error(q, target), row_weight), data.extra["td_valid"]).sum()
        metrics["loss/td"] = critic_loss.detach()
        if config.alpha > 0:
            gap = weigh(self._gap(data, state, (seen, seen_next), q), row_weight).mean(-1)
            critic_loss = critic_loss + config.alpha * gap.sum()
            metrics["penalty/gap"] = gap.detach().mean()
        self.critic_optimizer.minimise(critic_loss, config.critic_learning_rate)
        self.target.follow(self.critic, config.polyak)

        metrics |= {"loss/value": value_loss.detach(), "loss/critic": critic_loss.detach()}
        metrics |= {"value/q": q.detach().mean(), "value/advantage": (q_target - value).mean()}
        return Update(metrics, {PRIORITY: absolute_error(q, target, data.extra["td_valid"])})

    def _extract(self, data: Transitions, seen: Seen, advantage: Tensor) -> Metrics:
        """One step of π."""
        config, mask = self.config, data.extra.get("mask")
        if config.extraction == "ddpg_bc":
            loss, metrics = climb(self.policy, self.critic, seen, data.action, mask, config.climb_weight)
        elif config.extraction == "greedy_support":
            (behaviour,), share, rate = self.behaviour, config.support_share, config.value_learning_rate
            loss, metrics = clone_best(
                behaviour, self.policy, self.target.network, seen, data.action, mask, share, rate
            )
        else:
            state, weight = seen.by(self.policy), advantage_weights(advantage, config)
            if config.policy == "raw_seed":
                log_prob = raw_log_prob(self.policy.features(state), data.action)
            else:
                log_prob = self.policy.log_prob(state, data.action, mask)
            loss = weighted_negative_log_likelihood(log_prob, weight).mean()
            metrics = {
                "weight/effective_share": effective_sample_size(weight) / len(weight),
                "weight/clipped_share": share_at_ceiling(advantage, config),
            }
        self.policy_optimizer.minimise(loss, config.actor_learning_rate)
        return metrics | {"loss/actor": loss.detach()}

    def _gap(self, data: Transitions, state: Tensor, both: tuple[Seen, Seen], q: Tensor) -> Tensor:
        """P of each critic and row [K, B], given Q(s,a) [K, B]; [K, 1] of `relu_mean`."""
        config, critic, mask, noise = self.config, self.critic, data.extra.get("mask"), self.proposals.uniform
        if config.penalty == "cql_h":
            if isinstance(critic, ActionValues):
                return exact_gap(critic.every(state), data.action, mask)
            states = torch.cat([seen.by(self.policy) for seen in both])
            here, there = around_policy(self.policy, states).chunk(2)
            actions, log_density = self.proposals.draw(here, there, config.sampled_actions)
            return cql_h_gap(values_of_many(critic, state, actions), log_density, q)
        if config.penalty == "relu_mean" and config.negatives == "dataset":
            others = other_rows_values(critic, state, data.action, mask, noise, config.sampled_actions)
        else:
            others = uniform_values(critic, state, data.action, mask, noise, config.sampled_actions)
        return mean_gap(others, q) if config.penalty == "mean_gap" else relu_mean(others, q).unsqueeze(1)


def needs(config: Config) -> Needs:
    slices = config.penalty != "relu_mean"  # its slope is that of means over the batch
    return Needs(Transitions, actions=(Box, Discrete), sources=("offline", "replay"), slices=slices)


def build(config: Config, context: BuildContext) -> CIQL:
    warn_if_known_to_be_wrong(config, {**KNOWN_TO_BE_WRONG, "penalty": "relu_mean", "policy": "raw_seed"})
    if config.policy == "raw_seed":
        refuse_choices(context)
    builder = NetworkBuilder.of(context)
    critic = builder.critic(config.critic, members=config.critics, one_hot=config.critic_input == "onehot")
    policy, value = builder.actor(config.actor, critic=critic), builder.value(config.critic)
    return CIQL(
        config,
        policy,
        value,
        critic,
        Target.of(critic),
        actor_adam(policy, config, context),
        adam_for(value, config.value_optimizer, context),
        adam_for(critic, config.critic_optimizer, context),
        Proposals.seeded(context.seed),
        behaviour_models(config.extraction, builder, config.actor, config.value_optimizer),
    )
