"""Soft actor-critic (SAC), Haarnoja et al. 2018, *Soft Actor-Critic Algorithms and Applications*, arXiv:1812.05905.

A policy that is paid for its entropy climbs critics that know of it. Continuous actions, π a tanh of a Gaussian. In
this order, every update (ã' ~ π(·|s') and ã ~ π(·|s) are drawn anew, α is the temperature before the update):

    B   = min_j Q̄_j(s',ã') − α·log π(ã'|s')                    → losses.soft.soft_value
    y   = r + γ·B, or r where the episode terminated           → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)²                              → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄)                                 → parts.target.Target.follow
    L_π = mean α·log π(ã|s) − min_j Q_j(s,ã)                    → losses.soft.soft_policy_loss
    L_α = mean −log α·(log π(ã|s) + H̄)                          → losses.soft.temperature_loss

Differs from the paper in: L_Q has no ½ and L_α takes log α where it has α, as all code does; rewards of n steps and any
number of critics are offered; rows whose successor is unknown (`td_valid` false) are left out of L_Q. Differs from
Stable-Baselines3 in: log π is exact where its `log(1 − a² + 1e-6)` is off in the corners of the box, and log σ beyond a
limit has the gradient that leads back. Defaults are the field's: 256-256 ReLU, Adam 3e-4, γ .99, τ_polyak .005,
H̄ = −dim A.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.soft import soft_policy_loss, soft_value
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor
from understudy.nn.critic import QEnsemble
from understudy.nn.perception import Seen
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.soft_critic import SoftSettings, build_soft, drawn_actions
from understudy.parts.target import Target
from understudy.parts.temperature import Temperature


class Config(SoftSettings):
    """Soft actor-critic, continuous actions."""

    name: Literal["sac"] = "sac"
    """The algorithm."""


@final
@dataclass
class SAC:
    config: Static[Config]
    policy: Actor
    critic: QEnsemble
    target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    temperature: Temperature
    backup_noise: Noise
    actor_noise: Noise

    @property
    def demand(self) -> Demand:
        return Demand(("td_valid", "discount"), self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        """Entropy in the backup is unbounded."""
        return math.inf

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.target.network}

    def multipliers(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature.log_alpha} if self.config.entropy_learning_rate > 0 else {}

    def update(self, data: Transitions) -> Update:
        """One gradient step of Q, of the target critics, of π, and of the temperature."""
        seen, alpha = Seen(data.obs), self.temperature.value()
        metrics, feedback = self._update_critic(data, seen, alpha)
        return Update(metrics | self._update_actor(seen, alpha), feedback)

    def _update_critic(self, data: Transitions, seen: Seen, alpha: Tensor) -> Update:
        config, valid = self.config, data.extra["td_valid"]
        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, self._next_value(data, alpha))
        q = self.critic(seen.by(self.critic), data.action)
        loss = mean_over(weigh(squared_error(q, target), data.extra.get(SAMPLE_WEIGHT)), valid).sum()
        self.critic_optimizer.minimise(loss, config.critic_learning_rate)
        self.target.follow(self.critic, config.polyak)
        metrics = {"loss/critic": loss.detach(), "value/q": q.detach().mean()}
        return Update(metrics, {PRIORITY: absolute_error(q, target, valid)})

    @torch.no_grad()
    def _next_value(self, data: Transitions, alpha: Tensor) -> Tensor:
        """B [B], by the target critics."""
        seen_next, critics = Seen(data.next_obs), self.target.network
        action, log_prob = drawn_actions(self.policy, seen_next, self.backup_noise)
        q: Tensor = critics(seen_next.by(critics), action)
        return soft_value(q.amin(0), log_prob, alpha)

    def _update_actor(self, seen: Seen, alpha: Tensor) -> Metrics:
        """π climbs critics that hold still."""
        config = self.config
        action, log_prob = drawn_actions(self.policy, seen, self.actor_noise)
        q = self.critic.frozen(seen.by(self.critic), action).amin(0)
        loss = soft_policy_loss(log_prob, q, alpha).mean()
        self.policy_optimizer.minimise(loss, config.actor_learning_rate)
        log_prob = log_prob.detach()
        if config.entropy_learning_rate > 0:
            target_entropy = config.entropy_target * self.policy.spec.box.size
            self.temperature.follow(log_prob, target_entropy, config.entropy_learning_rate)
        return {"loss/actor": loss.detach(), "policy/entropy": -log_prob.mean(), "policy/temperature": alpha}


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("replay", "offline"), slices=True)


def build(config: Config, context: BuildContext) -> SAC:
    return SAC(config, *build_soft(config, context))
