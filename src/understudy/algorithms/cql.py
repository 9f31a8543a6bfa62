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
With `calibrate` it is Cal-QL (Nakamoto et al. 2023, arXiv:2303.05479): of π's actions max(Q_j(s,a_i), R(s)) stands in
the log-sum-exp, R the discounted return from s on of whoever acted there (`losses.conservative.calibrated`).

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
from understudy.core.settings import Widths
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.conservative import calibrated, constraint
from understudy.losses.policy import negative_log_likelihood
from understudy.losses.soft import BackupOrder, cautious_value, soft_policy_loss
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor
from understudy.nn.critic import CriticSettings, QEnsemble
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.nn.perception import Seen
from understudy.parts.conservative_penalty import PenaltySettings, penalty_gap
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.proposals import Proposals
from understudy.parts.soft_critic import TanhGaussianActorSettings, values_of_many
from understudy.parts.target import Target
from understudy.parts.temperature import Multiplier, Temperature
from understudy.parts.value_learning import actor_adam


class PolicySettings(TanhGaussianActorSettings):
    """The shape of the policy."""

    hidden: Widths = (256, 256, 256)
    """Units of each hidden layer."""


class CQLCriticSettings(CriticSettings):
    """The shape of the critics."""

    hidden: Widths = (256, 256, 256)
    """Units of each hidden layer."""


class Config(PenaltySettings):
    """Conservative Q-learning, continuous actions."""

    name: Literal["cql"] = "cql"
    """The algorithm."""
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
    def _one_next_action(self) -> "Config":
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
        columns = ("td_valid", "discount", *(("return_to_go",) if self.config.calibrate else ()))
        return Demand(columns, self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        return math.inf if self.config.penalty_weight > 0 or self.config.backup_entropy else 0.0

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.target.network}

    def multipliers(self) -> dict[str, Tensor]:
        constraints = {"lagrange": self.multiplier.log_multiplier} if self.config.lagrange else {}
        return constraints | ({"temperature": self.temperature.log_alpha} if self.config.entropy_learning_rate else {})

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
        counted, calibration = self._calibrated(q_sampled, data)
        gap = penalty_gap(config, counted, log_density, q)
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
        metrics |= calibration | ({"penalty/lagrange": multiplier} if config.lagrange else {})
        return Update(metrics, {PRIORITY: absolute_error(q, target, data.extra["td_valid"])})

    def _calibrated(self, q_sampled: Tensor, data: Transitions) -> tuple[Tensor, Metrics]:
        """The values that the gap counts [K, 3N, B], and how many of them were cut."""
        if not self.config.calibrate:
            return q_sampled, {}
        counted = calibrated(q_sampled, data.extra["return_to_go"], self.config.sampled_actions)
        of_policy = slice(self.config.sampled_actions, None)
        cut = (counted[:, of_policy] > q_sampled[:, of_policy]).float().mean()
        return counted, {"penalty/calibrated_share": cut}

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


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> CQL:
    builder, device, seed = NetworkBuilder.of(context), context.device, context.seed
    critic = builder.q_ensemble(config.critic, members=config.critics)
    policy = builder.actor(config.actor, critic=critic)
    return CQL(
        config,
        policy,
        critic,
        Target.of(critic),
        actor_adam(policy, config, context),
        adam_for(critic, config.critic_optimizer, context),
        Temperature.starting_at(config.entropy_weight, device, config.critic_warmup),
        Multiplier.starting_at(config.lagrange_start, device),
        Proposals.seeded(seed),
        Noise.named(seed, "noise/backup"),
        Noise.named(seed, "noise/actor"),
        torch.zeros((), dtype=torch.int64),
    )
