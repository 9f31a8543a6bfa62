"""Conservative Q-learning (CQL), Kumar, Zhou, Tucker and Levine 2020, arXiv:2006.04779.

SAC whose critics are also taught to rate the data's actions above all others, so that what the policy climbs is a lower
bound. Continuous actions. In this order, every update (α: `penalty_weight`, η: SAC's temperature, T: 1 by default):

    y   = r + γ·min_j Q̄_j(s',ã'), or r where the episode terminated      → losses.value.bootstrap_target
    LSE = T·[ logsumexp_i(Q_j(s,a_i)/T − log q_i) − ln 3N ]               → losses.conservative.sampled_log_sum_exp
    Δ_j = LSE − Q_j(s,a)                                                  → losses.conservative.cql_h_gap
    L_Q = Σ_j mean (Q_j(s,a) − y)² + α·mean Δ_j                           → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄)                                           → parts.target.Target.follow
    L_π = mean η·log π(ã|s) − min_j Q_j(s,ã)                              → losses.soft.soft_policy_loss
    L_η = mean −log η·(log π(ã|s) + H̄)                                    → losses.soft.temperature_loss

a_i: N uniform actions, N of π(·|s), N of π(·|s'), each with the log-density q_i it was drawn with. With `lagrange`,
α·Δ is multiplied by λ (`losses.conservative.constraint`), and L_λ = −mean λ·α·(Δ − τ) (`losses.soft.multiplier_loss`).

Differs from the paper in: the squared error has no ½, as in all code, so that our α is twice the paper's (`td_half`);
actions of π(·|s') are among the samples; entropy is not backed up. Differs from the authors' code in: ln 3N is
subtracted (no gradient sees it), T does not divide log q, the critic steps before the actor. Defaults are CORL's.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.settings import Count, Widths
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.conservative import LagrangeForm, constraint, cql_h_gap, cql_rho_gap
from understudy.losses.policy import negative_log_likelihood
from understudy.losses.soft import BackupOrder, cautious_value, soft_policy_loss
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor
from understudy.nn.critic import CriticSettings, QEnsemble
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.nn.perception import Seen
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.proposals import Proposals
from understudy.parts.soft_critic import TanhGaussianActorSettings, values_of_many
from understudy.parts.target import Target
from understudy.parts.temperature import Multiplier, Temperature
from understudy.parts.value_learning import ValueLearningSettings


class PolicySettings(TanhGaussianActorSettings):
    """The shape of the policy."""

    hidden: Widths = (256, 256, 256)
    """Units of each hidden layer."""


class CQLCriticSettings(CriticSettings):
    """The shape of the critics."""

    hidden: Widths = (256, 256, 256)
    """Units of each hidden layer."""


class Config(ValueLearningSettings):
    """Conservative Q-learning, continuous actions."""

    name: Literal["cql"] = "cql"
    """The algorithm."""
    penalty: Literal["cql_h", "cql_rho"] = "cql_h"
    """`cql_h` weighs sampled actions by their density, `cql_rho` takes them as they were drawn."""
    penalty_weight: float = Field(10.0, ge=0)
    """α: how much the gap counts beside the squared error; twice the paper's unless td_half."""
    penalty_temperature: float = Field(1.0, gt=0)
    """T of the log-sum-exp: toward 0 it is the maximum."""
    sampled_actions: Count = 10
    """N: so many each of uniform, π(·|s) and π(·|s') actions."""
    subtract_log_n: bool = True
    """Report the gap of the integral; others leave ln 3N in, which no gradient sees but a Lagrange threshold does."""
    clip_diff_min: float | None = None
    """A row's gap counts no less than this (AntMaze: -200)."""
    clip_diff_max: float | None = None
    """A row's gap counts no more than this."""
    lagrange: bool = False
    """Learn a multiplier that holds the gap at lagrange_gap, with the critics' step size."""
    lagrange_gap: float = 5.0
    """τ: the gap that the multiplier aims at."""
    lagrange_form: LagrangeForm = "weight_outside"
    """`weight_outside`: λ·α·(Δ − τ), as young-geng and CORL. `weight_inside`: λ·(α·Δ − τ), as the authors."""
    lagrange_start: float = Field(1.0, le=13.0)
    """log λ at the start: 1 as CORL, 0 as the authors."""
    td_half: bool = False
    """Halve the squared error, as the paper does."""
    max_backup: Literal["off"] | BackupOrder = "off"
    """Back up the best of N next actions: by the smaller critic (`max_min`), or each critic's own (`min_max`)."""
    backup_entropy: bool = False
    """Subtract η·log π(ã'|s') from the next value, as SAC does."""
    warm_start: int = Field(0, ge=0)
    """In so many updates at first the actor clones the data, by likelihood alone."""
    actor_learning_rate: float = Field(3e-5, gt=0)
    """Adam's step size for π."""
    entropy_weight: float = Field(1.0, gt=0)
    """η, SAC's temperature, at the start."""
    entropy_learning_rate: float = Field(3e-5, ge=0)
    """Adam's step size for log η; 0 leaves it as it is."""
    entropy_target: float = -1.0
    """H̄ for each action dimension."""
    actor: PolicySettings = PolicySettings()
    """The policy network."""
    critic: CQLCriticSettings = CQLCriticSettings()
    """The critics."""

    @model_validator(mode="after")
    def _check(self) -> "Config":
        low, high = self.clip_diff_min, self.clip_diff_max
        if low is not None and high is not None and low >= high:
            raise ValueError(f"clip_diff_min={low} must be below clip_diff_max={high}")
        if self.backup_entropy and self.max_backup != "off":
            raise ValueError("backup_entropy needs one next action: use it with max_backup=off")
        return self


@final
@dataclass
class CQL:
    config: Static[Config]
    policy: Actor
    critic: QEnsemble
    target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    temperature: Temperature
    multiplier: Multiplier
    proposals: Proposals
    backup_noise: Noise
    actor_noise: Noise
    updates: Tensor
    """How many there have been; on it the warm start depends."""

    @property
    def demand(self) -> Demand:
        return Demand(("td_valid", "discount"), self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        return math.inf if self.config.penalty_weight > 0 or self.config.backup_entropy else 0.0

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.target.network}

    def update(self, data: Transitions) -> Update:
        """One gradient step of Q, of the target critics, of π, and of the temperature."""
        seen, seen_next = Seen(data.obs), Seen(data.next_obs)
        metrics, feedback = self._update_critic(data, seen, seen_next)
        metrics |= self._update_actor(data, seen)
        self.updates.add_(1)
        return Update(metrics, feedback)

    def _update_critic(self, data: Transitions, seen: Seen, seen_next: Seen) -> Update:
        config, row_weight = self.config, data.extra.get(SAMPLE_WEIGHT)
        with torch.no_grad():
            states = torch.cat([seen.by(self.policy), seen_next.by(self.policy)])
            features, next_features = self.policy.features(states).chunk(2)
            next_value = self._next_value(next_features, seen_next.by(self.target.network))
            sampled, log_density = self.proposals.draw(features, next_features, config.sampled_actions)
        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, next_value)

        values = values_of_many(self.critic, seen.by(self.critic), torch.cat([data.action.unsqueeze(0), sampled]))
        q, q_sampled = values[:, 0], values[:, 1:]
        gap = self._gap(q_sampled, log_density, q)
        error = mean_over(weigh(squared_error(q, target), row_weight), data.extra["td_valid"])
        multiplier = self.multiplier.value()
        violation = weigh(constraint(gap, config.penalty_weight, config.lagrange_gap, config.lagrange_form), row_weight)
        penalty = multiplier * violation if config.lagrange else config.penalty_weight * weigh(gap, row_weight)
        loss = ((0.5 if config.td_half else 1.0) * error + penalty.mean(-1)).sum()
        self.critic_optimizer.minimise(loss, config.critic_learning_rate)
        self.target.follow(self.critic, config.polyak)
        if config.lagrange:
            self.multiplier.follow(violation.detach(), config.critic_learning_rate)
        of_policy = q_sampled.detach()[:, config.sampled_actions : 2 * config.sampled_actions]
        metrics = {"loss/critic": loss.detach(), "loss/td": error.detach().sum(), "value/q": q.detach().mean()}
        metrics |= {"value/q_policy_gap": of_policy.mean() - metrics["value/q"], "penalty/gap": gap.detach().mean()}
        metrics |= {"penalty/lagrange": multiplier} if config.lagrange else {}
        return Update(metrics, {PRIORITY: absolute_error(q, target, data.extra["td_valid"])})

    def _update_actor(self, data: Transitions, seen: Seen) -> Metrics:
        """π climbs critics that hold still; while warming up it clones."""
        config = self.config
        features = self.policy.features(seen.by(self.policy))
        noise = self.actor_noise.normal(*data.action.shape).to(features)
        action, log_prob = TanhGaussian.draw(features, noise)
        alpha = self.temperature.value()
        loss = soft_policy_loss(log_prob, self.critic.frozen(seen.by(self.critic), action).amin(0), alpha)
        if config.warm_start > 0:
            cloning = negative_log_likelihood(self.policy.distribution.log_prob(features, data.action))
            loss = torch.where(self.updates < config.warm_start, cloning, loss)
        loss = loss.mean()
        self.policy_optimizer.minimise(loss, config.actor_learning_rate)
        if config.entropy_learning_rate > 0:
            target_entropy = config.entropy_target * self.policy.spec.box.size
            self.temperature.follow(log_prob.detach(), target_entropy, config.entropy_learning_rate)
        return {"loss/actor": loss.detach(), "policy/entropy": -log_prob.detach().mean(), "policy/temperature": alpha}

    def _next_value(self, next_features: Tensor, next_state: Tensor) -> Tensor:
        """What the state after is worth [B], by the target critics."""
        config = self.config
        count = 1 if config.max_backup == "off" else config.sampled_actions
        noise = self.backup_noise.normal(count, len(next_state), self.policy.spec.box.size).to(next_state)
        action, log_prob = TanhGaussian.draw(next_features, noise)
        q = values_of_many(self.target.network, next_state, action)
        value = cautious_value(q, "max_min" if config.max_backup == "off" else config.max_backup)
        return value - self.temperature.value() * log_prob[0] if config.backup_entropy else value

    def _gap(self, q_sampled: Tensor, log_density: Tensor, q: Tensor) -> Tensor:
        """Δ [K, B]."""
        config, options = self.config, {"subtract_log_n": self.config.subtract_log_n}
        if config.penalty == "cql_h":
            gap = cql_h_gap(q_sampled, log_density, q, config.penalty_temperature, **options)
        else:
            gap = cql_rho_gap(q_sampled, q, config.penalty_temperature, **options)
        clipped = config.clip_diff_min is not None or config.clip_diff_max is not None
        return gap.clamp(config.clip_diff_min, config.clip_diff_max) if clipped else gap


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("offline",))


def build(config: Config, context: BuildContext) -> CQL:
    builder, device, seed = NetworkBuilder.of(context), context.device, context.seed
    critic = builder.q_ensemble(config.critic, members=config.critics)
    policy = builder.actor(config.actor, critic=critic)
    return CQL(
        config,
        policy,
        critic,
        Target.of(critic),
        adam_for(policy, config.actor_optimizer, context),
        adam_for(critic, config.critic_optimizer, context),
        Temperature.starting_at(config.entropy_weight, device),
        Multiplier.starting_at(config.lagrange_start, device),
        Proposals.seeded(seed),
        Noise.named(seed, "noise/backup"),
        Noise.named(seed, "noise/actor"),
        torch.zeros((), dtype=torch.int64),
    )
