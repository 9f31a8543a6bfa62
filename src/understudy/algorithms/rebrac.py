"""ReBRAC, Tarasov, Kurenkov, Nikulin and Kolesnikov 2023, *Revisiting the Minimalist Approach*, arXiv:2305.09836.

TD3+BC taken seriously: layer-normalised, deeper critics, and a penalty of its own for the critics. Every update:

    ã'  = clip(π̄(s') + clip(ε, ±c), ±1),  ε ~ N(0, σ²)                        → parts.td3.TargetNoise.smoothed
    d'  = ‖ã' − a'‖², the sum over action dimensions; a' is the data's next    → losses.policy.summed_squared_distance
    B   = min_j Q̄_j(s',ã') − β₂·d', without d' where the data has no a'       → losses.value.penalised_value
    y   = r + γ·B, or r where the episode terminated                           → losses.value.bootstrap_target
    L_Q = Σ_j mean (Q_j(s,a) − y)²                                             → losses.value.squared_error

and every `policy_delay`-th also, in this order:

    λ   = 1 / mean|min_j Q_j(s,π(s))|, a constant                              → losses.policy.value_scale
    L_π = mean ( β₁·‖π(s) − a‖² − λ·min_j Q_j(s,π(s)) )                        → losses.policy.penalised_climb
    Q̄   ← Q̄ + τ_polyak·(Q − Q̄),  π̄ ← π̄ + τ_polyak·(π − π̄)                     → parts.target.Target.follow

Differs from the paper in: the last step of a truncated episode has no next action and is learned from without d'
(the authors drop the row), rows whose successor is unknown (`td_valid` false) are left out of L_Q; layer normalisation
sits before the ReLU, not after; the target actor follows the actor after its step, not before; observations are
normalised unless the run asks not to (data.normalize_observations). With n-step returns a' is the action after the last
of the n steps. Continuous actions only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from understudy.core.batch import SAMPLE_WEIGHT, Transitions
from understudy.core.protocols import PRIORITY, BuildContext, Demand, Needs, Update
from understudy.core.settings import Widths
from understudy.core.spec import Box
from understudy.core.state import Static
from understudy.losses.policy import penalised_climb, summed_squared_distance, value_scale
from understudy.losses.value import absolute_error, bootstrap_target, mean_over, penalised_value, squared_error
from understudy.losses.weights import weigh
from understudy.nn.actor import Actor
from understudy.nn.critic import QEnsemble
from understudy.nn.init import Init
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


class PolicySettings(DeterministicActorSettings):
    """The shape of the policy."""

    hidden: Widths = (256, 256, 256)
    """Units of each hidden layer."""
    init: Init = "small_output"
    """`small_output` (biases of 0.1, last layer within ±1e-3, as the authors), `default`, `orthogonal`,
    `xavier_output`."""


class CriticSettings(TD3CriticSettings):
    """The shape of the critics."""

    hidden: Widths = (256, 256, 256)
    """Units of each hidden layer."""
    init: Init = "small_output"
    """`small_output` (biases of 0.1, last layer within ±3e-3, as the authors), `default`, `orthogonal`,
    `xavier_output`."""
    layer_norm: bool = True
    """Layer normalisation after each hidden layer: what keeps values of unseen actions from exploding."""


class Config(TD3Settings):
    """Behaviour-regularised actor-critic, revisited."""

    name: Literal["rebrac"] = "rebrac"
    """The algorithm."""
    actor_penalty: float = Field(0.01, ge=0)
    """β₁: price of the policy's distance to the data's action. 0.001 to 0.1, per dataset."""
    critic_penalty: float = Field(0.01, ge=0)
    """β₂: price of the target action's distance to the data's next action, in units of reward. 0 to 0.5."""
    policy_critic: Literal["min", "first"] = "min"
    """What the policy climbs: the smallest of the critics, or the first one, as TD3+BC does."""
    normalize_q: bool = True
    """λ = 1/mean|Q|, so that β₁ does not depend on the units of rewards; otherwise 1."""
    actor_learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size for π."""
    critic_learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size for Q."""
    actor: PolicySettings = PolicySettings()
    """The policy network."""
    critic: CriticSettings = CriticSettings()
    """The critics."""


@final
@dataclass
class ReBRAC:
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
        columns = ("td_valid", "discount", "next_action", "next_action_valid")
        return Demand(columns, self.config.n_step, self.config.gamma, priorities=True)

    @property
    def largest_shift(self) -> float:
        """γ·β₂·‖ã' − a'‖², of actions in [−1, 1]."""
        return 4.0 * self.policy.spec.box.size * self.config.critic_penalty * self.config.gamma

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
        config = self.config
        seen, seen_next = Seen(data.obs), Seen(data.next_obs)
        next_action, next_value = smoothed_next(self.policy_target, self.critic_target, self.noise, seen_next)
        distance, known = (
            summed_squared_distance(next_action, data.extra["next_action"]),
            data.extra["next_action_valid"],
        )
        backup = penalised_value(next_value, distance, config.critic_penalty, known)
        target = bootstrap_target(data.reward, data.extra["discount"], data.terminated, backup)
        q = self.critic(seen.by(self.critic), data.action)
        errors, valid = weigh(squared_error(q, target), data.extra.get(SAMPLE_WEIGHT)), data.extra["td_valid"]
        loss = mean_over(errors, valid).sum()
        self.critic_optimizer.minimise(loss, config.critic_learning_rate)
        metrics = {
            "loss/critic": loss.detach(),
            "value/q": self._climbed(q.detach()).mean(),
            "value/target": target.mean(),
            "value/penalty": config.critic_penalty * mean_over(distance, known),
        }
        return Update(metrics, {PRIORITY: absolute_error(q, target, valid)})

    def update_all(self, data: Transitions) -> Update:
        """One gradient step of the critics and of the actor, and of all targets."""
        config = self.config
        metrics, feedback = self.update_critics(data)
        seen = Seen(data.obs)
        action = self.policy.greedy(seen.by(self.policy))
        member = 0 if config.policy_critic == "first" else None
        q = self._climbed(self.critic.frozen(seen.by(self.critic), action, member))
        scale = value_scale(q) if config.normalize_q else torch.ones_like(metrics["value/q"])
        distance = summed_squared_distance(action, data.action)
        loss = penalised_climb(q, scale, distance, config.actor_penalty).mean()
        self.policy_optimizer.minimise(loss, config.actor_learning_rate)
        self.critic_target.follow(self.critic, config.polyak)
        self.policy_target.follow(self.policy, config.polyak)
        metrics |= {
            "loss/actor": loss.detach(),
            "value/q_policy_gap": q.detach().mean() - metrics["value/q"],
            "policy/bc_distance": distance.detach().mean() / self.policy.spec.box.size,
            "weight/q": scale,
        }
        return Update(metrics, feedback)

    def _climbed(self, q: Tensor) -> Tensor:
        """What the policy climbs [B], from the values of every critic [K, B]."""
        if q.dim() == 1:
            return q
        return q[0] if self.config.policy_critic == "first" else q.amin(0)


def needs(config: Config) -> Needs:
    return Needs(Transitions, actions=(Box,), sources=("offline", "replay"), slices=True)


def build(config: Config, context: BuildContext) -> ReBRAC:
    return ReBRAC(config, *build_td3(config, config.actor, config.critic, context, NetworkBuilder.of(context)))
