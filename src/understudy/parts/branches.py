"""Whole learners that can stand side by side: networks, targets, optimisers and random streams of their own.

Both know what a state is worth after the data's action (`next_value`), how they would act (`propose`), and what they
would climb (`value_of`). A branch seeded as TD3+BC is TD3+BC's networks and noise, to the bit.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from understudy.core.state import Static
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import QEnsemble
from understudy.nn.distributions import DistributionSettings, SigmaSettings
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.nn.dropout import eval_mode
from understudy.nn.init import Init
from understudy.nn.perception import RoleSettings, Seen
from understudy.parts.cloning import CloningWeight
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.td3 import TargetNoise, TD3Networks, smoothed_next


class BranchShape(RoleSettings):
    """What a branch's policy sees, and its shape."""

    sigma: SigmaSettings = SigmaSettings()
    """Of a squashed Gaussian: where it starts, and between what it stays."""

    init: Init = "default"
    """`default` (torch's Linear), `orthogonal`, `small_output` or `xavier_output`."""

    def actor(self, kind: Literal["deterministic", "tanh_gaussian"]) -> ActorSettings:
        """The whole policy of this shape."""
        seen = {name: value for name, value in self if name != "sigma"}
        return ActorSettings(**seen, distribution=DistributionSettings(kind=kind, **dict(self.sigma)))


@final
@dataclass(frozen=True)
class Proposal:
    """How a branch would act in a batch of states, with gradient."""

    features: Tensor
    """What its distribution reads [B, …]."""
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
    noise: TargetNoise
    tether: CloningWeight
    coin: Noise
    """For rows chosen at random."""

    def networks(self) -> dict[str, nn.Module]:
        return {
            "policy": self.policy,
            "target_policy": self.policy_target.network,
            "critic": self.critic,
            "target_critic": self.critic_target.network,
        }

    @torch.no_grad()
    def next_value(self, seen_next: Seen) -> Tensor:
        """min_j Q̄_j(s',ã') [B] of the smoothed target action."""
        return smoothed_next(self.policy_target, self.critic_target, self.noise, seen_next)[1]

    def propose(self, seen: Seen) -> Proposal:
        features = self.policy.features(seen.by(self.policy))
        action = self.policy.distribution.mode(features)
        return Proposal(features, action, action, None)

    def value_of(self, seen: Seen, proposal: Proposal) -> Tensor:
        """Q₁(s,π(s)) [B]; gradients go to the action only."""
        return self.critic.frozen(seen.by(self.critic), proposal.action, member=0)

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
    def next_value(self, seen_next: Seen) -> Tensor:
        """min_j Q̄_j(s',ã') − η·log π(ã'|s') [B]."""
        proposal, critic = self._drawn(seen_next, self.backup_noise), self.critic_target.network
        value: Tensor = critic(seen_next.by(critic), proposal.action)
        return self.with_entropy(value.amin(0), proposal)

    def propose(self, seen: Seen) -> Proposal:
        return self._drawn(seen, self.actor_noise)

    def value_of(self, seen: Seen, proposal: Proposal) -> Tensor:
        """min_j Q_j(s,ã) [B]; gradients go to the action only."""
        return self.critic.frozen(seen.by(self.critic), proposal.action).amin(0)

    def with_entropy(self, value: Tensor, proposal: Proposal) -> Tensor:
        """Q − η·log π(ã|s) [B]."""
        assert proposal.log_prob is not None
        return value if self.entropy_weight == 0 else value - self.entropy_weight * proposal.log_prob

    def follow(self, rate: float) -> None:
        """The target critics, some of the way."""
        self.critic_target.follow(self.critic, rate)

    def _drawn(self, seen: Seen, noise: Noise) -> Proposal:
        features = self.policy.features(seen.by(self.policy))
        drawn = noise.normal(len(features), features.shape[-1] // 2).to(features)
        return Proposal(features, self.policy.distribution.mode(features), *TanhGaussian.draw(features, drawn))


Branch = DeterministicBranch | SoftBranch


@torch.no_grad()
def propose_without_noise(policy: Actor, seen: Seen) -> Proposal:
    """How a policy would act if it did not drop units or draw: no gradient, and no random stream moves."""
    with eval_mode(policy) if policy.trunk.drops else nullcontext():
        features = policy.features(seen.by(policy))
    action = policy.distribution.mode(features)
    return Proposal(features, action, action, None)


@torch.no_grad()
def values_without_dropout(critic: QEnsemble, seen: Seen, action: Tensor) -> Tensor:
    """Q_j(s,a) [K, B] without dropping units: no gradient, and no random stream moves."""
    with eval_mode(critic) if critic.trunk.drops else nullcontext():
        values: Tensor = critic(seen.by(critic), action)
    return values


def deterministic_branch(networks: TD3Networks, tether: CloningWeight, seed: int) -> DeterministicBranch:
    """A branch around fresh networks."""
    return DeterministicBranch(*networks, tether, Noise.named(seed, "coin"))


def soft_branch(networks: TD3Networks, tether: CloningWeight, seed: int, entropy_weight: float) -> SoftBranch:
    """A branch around fresh networks; it has no use for a target policy, or for noise on its actions."""
    return SoftBranch(
        networks.policy,
        networks.critic,
        networks.critic_target,
        networks.policy_optimizer,
        networks.critic_optimizer,
        tether,
        Noise.named(seed, "coin"),
        Noise.named(seed, "noise/backup"),
        Noise.named(seed, "noise/actor"),
        entropy_weight,
    )
