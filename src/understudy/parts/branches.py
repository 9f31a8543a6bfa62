"""Whole learners that can stand side by side: networks, targets, optimisers and random streams of their own.

Both know what a state is worth after the data's action (`next_value`), how they would act (`propose`), and what they
would climb (`value_of`). A branch seeded as TD3+BC is TD3+BC's networks and noise, to the bit.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.state import Static
from understudy.nn.actor import Actor
from understudy.nn.critic import QEnsemble
from understudy.nn.dropout import eval_mode
from understudy.nn.heads import SquashedGaussian
from understudy.nn.init import Init
from understudy.nn.mlp import NetworkSettings
from understudy.parts.cloning import CloningWeight
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.td3 import TargetNoise


class BranchShape(NetworkSettings):
    """The shape of a branch's networks."""

    init: Init = "default"
    """`default` (torch's Linear), `orthogonal` or `small_output`."""


@final
@dataclass(frozen=True)
class Proposal:
    """How a branch would act in a batch of states, with gradient."""

    features: Tensor
    """What its head reads [B, outputs]."""
    greedy: Tensor
    """π(s) [B, A] in policy space."""
    action: Tensor
    """The same, or one that was drawn [B, A]."""
    log_prob: Tensor | None
    """Of an action that was drawn [B]."""


@final
@dataclass
class DeterministicBranch:
    """TD3: a deterministic actor, smoothed target actions, the first critic to climb."""

    policy: Static[Actor]
    """An alias: whoever acts for the branches holds it."""
    policy_target: Target[Actor]
    critic: QEnsemble
    critic_target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    tether: CloningWeight
    coin: Noise
    """For rows chosen at random."""
    noise: TargetNoise

    def networks(self) -> dict[str, nn.Module]:
        return {
            "policy": self.policy,
            "target_policy": self.policy_target.network,
            "critic": self.critic,
            "target_critic": self.critic_target.network,
        }

    @torch.no_grad()
    def next_value(self, next_state: Tensor) -> Tensor:
        """min_j Q̄_j(s',ã') [B] of the smoothed target action."""
        target = self.policy_target.network
        next_action = self.noise.smoothed(target.head.mode(target.features(next_state)))
        values: Tensor = self.critic_target.network(next_state, next_action)
        return values.amin(0)

    def propose(self, state: Tensor) -> Proposal:
        features = self.policy.features(state)
        action = self.policy.head.mode(features)
        return Proposal(features, action, action, None)

    def value_of(self, state: Tensor, proposal: Proposal) -> Tensor:
        """Q₁(s,π(s)) [B]; gradients go to the action only."""
        return self.critic.frozen(state, proposal.action, member=0)

    def with_entropy(self, value: Tensor, proposal: Proposal) -> Tensor:
        """The same [B]: there is none."""
        return value

    def follow(self, rate: float) -> None:
        """All targets, some of the way."""
        self.critic_target.follow(self.critic, rate)
        self.policy_target.follow(self.policy, rate)


@final
@dataclass
class SoftBranch:
    """SAC: a squashed Gaussian, actions drawn anew, the smaller critic to climb, and entropy at a fixed price."""

    policy: Static[Actor]
    """An alias: whoever acts for the branches holds it."""
    critic: QEnsemble
    critic_target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    tether: CloningWeight
    coin: Noise
    """For rows chosen at random."""
    backup_noise: Noise
    actor_noise: Noise
    entropy_weight: Static[float]
    """η, in units of reward."""

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.critic_target.network}

    @torch.no_grad()
    def next_value(self, next_state: Tensor) -> Tensor:
        """min_j Q̄_j(s',ã') − η·log π(ã'|s') [B]."""
        proposal = self._drawn(next_state, self.backup_noise)
        value: Tensor = self.critic_target.network(next_state, proposal.action)
        return self.with_entropy(value.amin(0), proposal)

    def propose(self, state: Tensor) -> Proposal:
        return self._drawn(state, self.actor_noise)

    def value_of(self, state: Tensor, proposal: Proposal) -> Tensor:
        """min_j Q_j(s,ã) [B]; gradients go to the action only."""
        return self.critic.frozen(state, proposal.action).amin(0)

    def with_entropy(self, value: Tensor, proposal: Proposal) -> Tensor:
        """Q − η·log π(ã|s) [B]."""
        assert proposal.log_prob is not None
        return value if self.entropy_weight == 0 else value - self.entropy_weight * proposal.log_prob

    def follow(self, rate: float) -> None:
        """The target critics, some of the way."""
        self.critic_target.follow(self.critic, rate)

    def _drawn(self, state: Tensor, noise: Noise) -> Proposal:
        features = self.policy.features(state)
        drawn = noise.normal(len(state), features.shape[-1] // 2).to(features)
        return Proposal(features, self.policy.head.mode(features), *SquashedGaussian.draw(features, drawn))


Branch = DeterministicBranch | SoftBranch


@torch.no_grad()
def propose_without_noise(policy: Actor, state: Tensor) -> Proposal:
    """How a policy would act if it did not drop units or draw: no gradient, and no random stream moves."""
    with eval_mode(policy) if policy.trunk.drops else nullcontext():
        features = policy.features(state)
    action = policy.head.mode(features)
    return Proposal(features, action, action, None)


@torch.no_grad()
def values_without_dropout(critic: QEnsemble, state: Tensor, action: Tensor) -> Tensor:
    """Q_j(s,a) [K, B] without dropping units: no gradient, and no random stream moves."""
    with eval_mode(critic) if critic.mlp.drops else nullcontext():
        values: Tensor = critic(state, action)
    return values


def deterministic_branch(
    policy: Actor, critic: QEnsemble, tether: CloningWeight, seed: int, noise: TargetNoise
) -> DeterministicBranch:
    """A branch around fresh networks."""
    return DeterministicBranch(
        policy,
        Target.of(policy),
        critic,
        Target.of(critic),
        Adam.over(policy.parameters()),
        Adam.over(critic.parameters()),
        tether,
        Noise.named(seed, "coin"),
        noise,
    )


def soft_branch(
    policy: Actor, critic: QEnsemble, tether: CloningWeight, seed: int, entropy_weight: float
) -> SoftBranch:
    """A branch around fresh networks."""
    return SoftBranch(
        policy,
        critic,
        Target.of(critic),
        Adam.over(policy.parameters()),
        Adam.over(critic.parameters()),
        tether,
        Noise.named(seed, "coin"),
        Noise.named(seed, "noise/backup"),
        Noise.named(seed, "noise/actor"),
        entropy_weight,
    )
