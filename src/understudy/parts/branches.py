"""Whole learners that can stand side by side: networks, targets, optimisers and random streams of their own.

All know what a state is worth after the data's action (`next_value`), how they rate what was done (`judge`), how they
would act (`propose`), and what they would climb (`value_of`). Masks [B, N] are of discrete actions where the data has
them, and None elsewhere.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.state import Static
from understudy.losses.action_values import entropy, expected_value, legal_or_all, taken
from understudy.losses.conservative import exact_gap
from understudy.nn.actor import Actor
from understudy.nn.critic import ActionValues, Critic, QEnsemble
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.nn.dropout import eval_mode
from understudy.nn.perception import Seen
from understudy.parts.cloning import CloningWeight
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.td3 import TargetNoise, smoothed_next


@final
@dataclass(frozen=True)
class Proposal:
    """How a branch would act in a batch of states, with gradient."""

    features: Tensor
    """What its distribution reads [B, …]."""
    greedy: Tensor
    """π(s) [B, A] in policy space, or the likeliest choice [B]."""
    action: Tensor
    """The same, or one that was drawn [B, A]."""
    log_prob: Tensor | None
    """Of an action that was drawn [B]."""

    @property
    def stance(self) -> Tensor:
        """What two learners are compared by [B, A]: π(s), or the probabilities of choices."""
        return self.greedy if self.greedy.is_floating_point() else torch.softmax(self.features, -1)


@final
@dataclass(frozen=True)
class Judgement:
    """What a branch thinks of the data's actions, with gradient."""

    q: Tensor
    """Q_j(s,a) [K, B]."""
    gap: Tensor | None = None
    """Δ_j [K, B]: how far it rates other actions above them, where it is punished for that."""


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
    def next_value(self, seen_next: Seen, mask: Tensor | None = None) -> Tensor:
        """min_j Q̄_j(s',ã') [B] of the smoothed target action."""
        return smoothed_next(self.policy_target, self.critic_target, self.noise, seen_next)[1]

    def judge(self, seen: Seen, action: Tensor, mask: Tensor | None = None) -> Judgement:
        return Judgement(self.critic(seen.by(self.critic), action))

    def propose(self, seen: Seen, mask: Tensor | None = None) -> Proposal:
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
    def next_value(self, seen_next: Seen, mask: Tensor | None = None) -> Tensor:
        """min_j Q̄_j(s',ã') − η·log π(ã'|s') [B]."""
        proposal, critic = self._drawn(seen_next, self.backup_noise), self.critic_target.network
        value: Tensor = critic(seen_next.by(critic), proposal.action)
        return self.with_entropy(value.amin(0), proposal)

    def judge(self, seen: Seen, action: Tensor, mask: Tensor | None = None) -> Judgement:
        return Judgement(self.critic(seen.by(self.critic), action))

    def propose(self, seen: Seen, mask: Tensor | None = None) -> Proposal:
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


@final
@dataclass
class SoftmaxBranch:
    """Discrete actions: a softmax policy, the value it expects, and the smaller critic of every action to climb."""

    policy: Static[Actor]
    """An alias: whoever acts for the branches holds it."""
    critic: ActionValues
    critic_target: Target[ActionValues]
    policy_optimizer: Adam
    critic_optimizer: Adam
    tether: CloningWeight
    coin: Noise
    """For rows chosen at random."""
    entropy_weight: Static[float]
    """η, in units of reward."""
    conservative: Static[bool]
    """It is punished for rating other actions above the data's."""

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "critic": self.critic, "target_critic": self.critic_target.network}

    @torch.no_grad()
    def next_value(self, seen_next: Seen, mask: Tensor | None = None) -> Tensor:
        """Σ_a π(a|s')·min_j Q̄_j(s',a) [B] over legal actions."""
        legal = None if mask is None else legal_or_all(mask)
        critic, logits = self.critic_target.network, self.policy.features(seen_next.by(self.policy), legal)
        return expected_value(logits, critic.every(seen_next.by(critic)).amin(0))

    def judge(self, seen: Seen, action: Tensor, mask: Tensor | None = None) -> Judgement:
        values = self.critic.every(seen.by(self.critic))
        return Judgement(taken(values, action), exact_gap(values, action, mask) if self.conservative else None)

    def propose(self, seen: Seen, mask: Tensor | None = None) -> Proposal:
        features = self.policy.features(seen.by(self.policy), mask)
        choice = self.policy.distribution.mode(features)
        return Proposal(features, choice, choice, None)

    def value_of(self, seen: Seen, proposal: Proposal) -> Tensor:
        """Σ_a π(a|s)·min_j Q_j(s,a) [B]; gradients go to the policy only."""
        with torch.no_grad():
            values = self.critic.every(seen.by(self.critic)).amin(0)
        return expected_value(proposal.features, values)

    def with_entropy(self, value: Tensor, proposal: Proposal) -> Tensor:
        """… + η·H(π) [B]."""
        return value if self.entropy_weight == 0 else value + self.entropy_weight * entropy(proposal.features)

    def follow(self, rate: float) -> None:
        """The target critics, some of the way."""
        self.critic_target.follow(self.critic, rate)


Branch = DeterministicBranch | SoftBranch | SoftmaxBranch


@torch.no_grad()
def propose_without_noise(policy: Actor, seen: Seen, mask: Tensor | None = None) -> Proposal:
    """How a policy would act if it did not drop units or draw: no gradient, and no random stream moves."""
    with eval_mode(policy) if policy.trunk.drops else nullcontext():
        features = policy.features(seen.by(policy), mask)
    action = policy.distribution.mode(features)
    return Proposal(features, action, action, None)


@torch.no_grad()
def values_without_dropout(critic: Critic, seen: Seen, action: Tensor) -> Tensor:
    """Q_j(s,a) [K, B] without dropping units: no gradient, and no random stream moves."""
    with eval_mode(critic) if critic.trunk.drops else nullcontext():
        values: Tensor = critic(seen.by(critic), action)
    return values
