"""Randomised ensembled double Q-learning (REDQ), Chen, Wang, Zhou and Ross 2021, arXiv:2101.05982.

SAC that may learn many times from every step: N critics, of which a few, drawn anew at every update, say what follows.
Continuous actions, π a tanh of a Gaussian. Every update (α is the temperature before it):

    J   = M of the N target critics, drawn without replacement        → losses.soft.drawn_members
    B   = min_{j∈J} Q̄_j(s',ã') − α·log π(ã'|s')                       → losses.soft.soft_value
    y   = r + γ·B, or r where the episode terminated                  → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)², over all N                         → losses.value.squared_error
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄)                                        → parts.target.Target.follow

and every `policy_delay`-th also, in this order:

    L_π = mean α·log π(ã|s) − (1/N)·Σ_j Q_j(s,ã)                       → losses.soft.soft_policy_loss
    L_α = mean −log α·(log π(ã|s) + H̄)                                 → losses.soft.temperature_loss

With N = M, `policy_delay=1` and `actor_values=min` this is SAC, to the bit. How many updates a step of the environment
gets is the source's (`source.utd_ratio`, 20 in the paper). Presets of this file: `droq/…` (Hiraoka et al. 2022,
arXiv:2110.02034: two critics with dropout and layer normalisation) and `rlpd/…` (Ball et al. 2023, arXiv:2302.02948:
layer-normalised critics, half of every batch from a dataset).

Differs from the paper in: only the M target critics that were drawn are computed; L_Q has no ½, L_α takes log α; H̄ is
−1 for each action dimension (`entropy_target`), where the paper has MBPO's table; rewards of n steps are offered; rows
whose successor is unknown (`td_valid` false) are left out of L_Q. Target critics never drop units (DroQ's do).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Metrics, Needs, Update
from understudy.core.settings import Count
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.soft import drawn_members, soft_policy_loss, soft_value
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
    """Randomised ensembled double Q-learning."""

    name: Literal["redq"] = "redq"
    """The algorithm."""
    critics: Count = 10
    """N: how many learn side by side."""
    target_subset: Count = 2
    """M: of so many target critics, drawn anew at every update, the smallest value counts."""
    actor_values: Literal["mean", "min"] = "mean"
    """What the policy climbs: the mean of all critics, or the smallest, as SAC's."""
    policy_delay: int = Field(20, ge=1)
    """Updates of the critics for each update of the policy and of the temperature."""

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> Self:
        if self.target_subset > self.critics:
            raise ValueError(f"target_subset={self.target_subset} of critics={self.critics}: there are not so many")
        return self


@final
@dataclass
class REDQ:
    config: Static[Config]
    policy: Actor
    critic: QEnsemble
    target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    temperature: Temperature
    backup_noise: Noise
    actor_noise: Noise
    subset_noise: Noise
    """By which target critics are drawn."""
    updates: int = 0
    """How many there have been; on it depends whose turn it is."""

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
        """One gradient step of the critics and a move of their targets; at every `policy_delay`-th, of π and α too."""
        return self.turn()(data)

    def turn(self) -> Callable[[Transitions], Update]:
        """Count, and say whose turn it is."""
        self.updates += 1
        due = self.updates % self.config.policy_delay == 0
        return self.update_all if due else self.update_critics

    def update_critics(self, data: Transitions) -> Update:
        """One gradient step of the critics, and a move of their targets."""
        return self._update_critics(data, Seen(data.obs), self.temperature.value())

    def update_all(self, data: Transitions) -> Update:
        """The same, and one gradient step of π and of the temperature."""
        seen, alpha = Seen(data.obs), self.temperature.value()
        metrics, feedback = self._update_critics(data, seen, alpha)
        return Update(metrics | self._update_actor(seen, alpha), feedback)

    def _update_critics(self, data: Transitions, seen: Seen, alpha: Tensor) -> Update:
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
        """B [B], by those of the target critics that are drawn."""
        seen_next, critics = Seen(data.next_obs), self.target.network
        action, log_prob = drawn_actions(self.policy, seen_next, self.backup_noise)
        state = seen_next.by(critics)
        if self.config.target_subset == self.config.critics:
            q: Tensor = critics(state, action)
        else:
            lots = self.subset_noise.uniform(self.config.critics, rows=None).to(state)
            q = critics.frozen(state, action, drawn_members(lots, self.config.target_subset))
        return soft_value(q.amin(0), log_prob, alpha)

    def _update_actor(self, seen: Seen, alpha: Tensor) -> Metrics:
        """π climbs critics that hold still."""
        config = self.config
        action, log_prob = drawn_actions(self.policy, seen, self.actor_noise)
        q = self.critic.frozen(seen.by(self.critic), action)
        climbed = q.mean(0) if config.actor_values == "mean" else q.amin(0)
        loss = soft_policy_loss(log_prob, climbed, alpha).mean()
        self.policy_optimizer.minimise(loss, config.actor_learning_rate)
        log_prob = log_prob.detach()
        if config.entropy_learning_rate > 0:
            target_entropy = config.entropy_target * self.policy.spec.box.size
            self.temperature.follow(log_prob, target_entropy, config.entropy_learning_rate)
        spread = q.detach().std(0, correction=0).mean()
        return {
            "loss/actor": loss.detach(),
            "value/q_spread": spread,
            "policy/entropy": -log_prob.mean(),
            "policy/temperature": alpha,
        }


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("replay", "offline"), slices=True)


def build(config: Config, context: BuildContext) -> REDQ:
    return REDQ(config, *build_soft(config, context, config.policy_delay), Noise.named(context.seed, "target_subset"))
