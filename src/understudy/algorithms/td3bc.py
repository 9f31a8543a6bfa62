"""TD3+BC, Fujimoto and Gu 2021, *A Minimalist Approach to Offline Reinforcement Learning*, arXiv:2106.06860.

TD3 whose actor is also asked to stay near the data. Every update:

    ã'  = clip(π̄(s') + clip(ε, ±c), ±1),  ε ~ N(0, σ²)               → parts.td3.TargetNoise.smoothed
    y   = r + γ·min_j Q̄_j(s',ã'), or r where the episode terminated  → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)²                                    → losses.value.squared_error

and every `policy_delay`-th also, in this order:

    λ   = α / mean|Q₁(s,π(s))|, a constant                            → losses.policy.value_scale
    d   = ‖π(s) − a‖²/A, the mean over action dimensions              → losses.policy.squared_distance
    L_π = mean ( w·d − λ·Q₁(s,π(s)) ), w = 1                          → losses.policy.penalised_climb
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄),  π̄ ← π̄ + τ_polyak·(π − π̄)            → parts.target.Target.follow

With w = 0 and λ = 1 (`cloning_weight=0 normalize_q=false alpha=1`) it is TD3 (Fujimoto, van Hoof and Meger 2018,
arXiv:1802.09477), which learns from its own steps: presets `td3` and `td3/…`, with `source.exploration_noise`.

Differs from the paper in: rows whose successor is unknown (`td_valid` false) are left out of L_Q instead of being
dropped from the data; n-step returns and other numbers of critics are offered. Defaults are the paper's. Continuous
actions only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Needs, Update
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.policy import penalised_climb, squared_distance, value_scale
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor
from understudy.nn.critic import QEnsemble
from understudy.nn.perception import Seen
from understudy.parts.networks import NetworkBuilder
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.td3 import (
    DeterministicActorSettings,
    TargetNoise,
    TD3CriticSettings,
    TD3Settings,
    build_td3,
    smoothed_next,
)


class Config(TD3Settings):
    """TD3 with behaviour cloning."""

    name: Literal["td3bc"] = "td3bc"
    """The algorithm."""
    alpha: float = Field(2.5, ge=0)
    """Weight of the (normalised) value against cloning: 0 is behaviour cloning, large is TD3."""
    normalize_q: bool = True
    """λ = α/mean|Q|, so that α does not depend on the units of rewards; otherwise λ = α."""
    cloning_weight: float = Field(1.0, ge=0)
    """w: what staying near the data's actions counts; 0 is TD3."""
    actor: DeterministicActorSettings = DeterministicActorSettings()
    """The policy network."""
    critic: TD3CriticSettings = TD3CriticSettings()
    """The critics."""


@final
@dataclass
class TD3BC:
    config: Static[Config]
    policy: Actor
    policy_target: Target[Actor]
    critic: QEnsemble
    critic_target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    noise: TargetNoise
    updates: int = 0
    """How many there have been; on it depends whose turn it is."""

    @property
    def demand(self) -> Demand:
        return Demand(("td_valid", "discount"), self.config.n_step, self.config.gamma, priorities=True)

    def networks(self) -> dict[str, nn.Module]:
        return {
            "policy": self.policy,
            "target_policy": self.policy_target.network,
            "critic": self.critic,
            "target_critic": self.critic_target.network,
        }

    def update(self, data: Transitions) -> Update:
        """One gradient step of the critics; at every `policy_delay`-th, of the actor and the targets too."""
        return self.turn()(data)

    def turn(self) -> Callable[[Transitions], Update]:
        """Count, and say whose turn it is."""
        self.updates += 1
        due = self.updates % self.config.policy_delay == 0
        return self.update_all if due else self.update_critics

    def update_critics(self, data: Transitions) -> Update:
        """One gradient step of the critics."""
        seen, seen_next = Seen(data.obs), Seen(data.next_obs)
        _, next_value = smoothed_next(self.policy_target, self.critic_target, self.noise, seen_next)
        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, next_value)
        q = self.critic(seen.by(self.critic), data.action)
        errors, valid = weigh(squared_error(q, target), data.extra.get(SAMPLE_WEIGHT)), data.extra["td_valid"]
        loss = mean_over(errors, valid).sum()
        self.critic_optimizer.minimise(loss, self.config.critic_learning_rate)
        metrics = {"loss/critic": loss.detach(), "value/q": q.detach()[0].mean(), "value/target": target.mean()}
        return Update(metrics, {PRIORITY: absolute_error(q, target, valid)})

    def update_all(self, data: Transitions) -> Update:
        """One gradient step of the critics and of the actor, and of all targets."""
        metrics, feedback = self.update_critics(data)
        seen = Seen(data.obs)
        action = self.policy.greedy(seen.by(self.policy))
        q = self.critic.frozen(seen.by(self.critic), action, member=0)
        scale = self.config.alpha * (value_scale(q) if self.config.normalize_q else torch.ones_like(metrics["value/q"]))
        distance = squared_distance(action, data.action)
        loss = penalised_climb(q, scale, distance, self.config.cloning_weight).mean()
        self.policy_optimizer.minimise(loss, self.config.actor_learning_rate)
        self.critic_target.follow(self.critic, self.config.polyak)
        self.policy_target.follow(self.policy, self.config.polyak)
        metrics |= {
            "loss/actor": loss.detach(),
            "value/q_policy_gap": q.detach().mean() - metrics["value/q"],
            "policy/bc_distance": distance.detach().mean(),
            "weight/q": scale,
        }
        return Update(metrics, feedback)


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> TD3BC:
    return TD3BC(config, *build_td3(config, config.actor, config.critic, context, NetworkBuilder.of(context)))
