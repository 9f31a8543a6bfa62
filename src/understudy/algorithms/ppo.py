"""Proximal policy optimisation (PPO; Schulman et al. 2017): learn from what the policy just did, but not too much.

    δ    = r + γ·V(s′) − V(s), where V(s′) counts unless s′ is terminal; then
    A    = δ + γλ·A′ within an episode                              → losses.returns.generalised_advantages
    L(π) = mean max(−A·ρ, −A·clip(ρ, 1 ± ε)) − η·mean H(π),  ρ = π(a|s)/π_old(a|s)
                                                                    → losses.surrogate.clipped_surrogate
    L(V) = mean (V(s) − y)²,  y = A + V_old(s); or, with value_clip, the larger of it and the clipped one
                                                                    → losses.surrogate.clipped_value_error

Roles: the actor and the critic each say which observation groups or segments they see, so a critic may see what the
actor cannot. Each is a perception (normalisers, encoders, memory), a trunk and a head; see docs/ppo.md.

Differs from the paper in: advantages are standardised over the rollout; gradients are cut per network, not jointly;
the step size may follow the KL (`adaptive`). Differs from rsl_rl in: a time limit bootstraps from V of the final
observation, not of the one before; minibatches are drawn anew in every epoch and none is dropped; a value bootstrap
never advances a memory. Differs from Stable-Baselines3 in: normalisers are part of the policy and stand still during
an update, so that the first ratio is 1 up to rounding.
"""

from dataclasses import dataclass
from typing import Literal, final

from torch import nn

from understudy.core.batch import Rollout
from understudy.core.errors import ConfigError
from understudy.core.protocols import BuildContext, Demand, Needs, Update
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, MultiDiscrete
from understudy.core.state import Static
from understudy.nn.actor import Actor
from understudy.nn.value_network import ValueNetwork
from understudy.parts.ppo.networks import OnPolicyActorSettings, OnPolicyCriticSettings, build_networks
from understudy.parts.ppo.settings import PPOSettings
from understudy.parts.ppo.update import Proximal


class Config(PPOSettings):
    """PPO."""

    name: Literal["ppo"] = "ppo"
    """The algorithm."""
    actor: OnPolicyActorSettings = OnPolicyActorSettings()
    """The policy: what it sees, its shape, how it draws."""
    critic: OnPolicyCriticSettings = OnPolicyCriticSettings()
    """The value function: what it sees, its shape, what it shares with the actor."""


@final
@dataclass
class PPO:
    config: Static[Config]
    policy: Actor
    value: ValueNetwork
    proximal: Proximal

    @property
    def demand(self) -> Demand:
        return Demand(gamma=self.config.gamma)

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "value": self.value}

    def update(self, data: Rollout) -> Update:
        """Some epochs of minibatches over one rollout."""
        return Update(self.proximal.update(data))


def needs(config: Config) -> Needs:
    return Needs(Rollout, actions=(Box, Discrete, MultiDiscrete), sources=("rollout",), compiles=False)


def build(config: Config, context: BuildContext) -> PPO:
    policy, value = build_networks(config.actor, config.critic, context)
    if (policy.initial(1) or value.initial(1)) and config.minibatches > context.num_envs:
        raise ConfigError(
            "algo.minibatches",
            "with memory a minibatch is whole environments",
            got=config.minibatches,
            expected=f"at most {context.num_envs}",
        )
    shuffle = stream(context.seed, "shuffle")
    proximal = Proximal.of(config, policy, value, shuffle, context.num_envs, updates=context.updates)
    return PPO(config, policy, value, proximal)
