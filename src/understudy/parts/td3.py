"""Pieces of TD3 (Fujimoto, van Hoof and Meger 2018): deterministic actors, smoothed target actions, delayed updates."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from pydantic import Field
from torch import Tensor

from understudy.core.protocols import BuildContext
from understudy.core.state import Static
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import CriticSettings, QEnsemble
from understudy.nn.distributions import DistributionSettings
from understudy.nn.init import Init
from understudy.nn.perception import Seen
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.value_learning import ValueLearningSettings, actor_adam


class DeterministicSettings(DistributionSettings):
    """a = tanh(f(s)); there is no other here."""

    kind: Literal["deterministic"] = "deterministic"
    """`deterministic`: this algorithm climbs its critics with a policy that does not draw."""


class DeterministicActorSettings(ActorSettings):
    """What a deterministic policy sees, and its shape."""

    distribution: DeterministicSettings = DeterministicSettings()
    """`deterministic`: a = tanh(f(s))."""
    init: Init = "default"
    """`default` (torch's Linear, as the authors), `orthogonal`, `small_output` or `xavier_output`."""


class TD3CriticSettings(CriticSettings):
    """What the critics see, and their shape."""

    init: Init = "default"
    """`default` (torch's Linear, as the authors), `orthogonal`, `small_output` or `xavier_output`."""


class TD3Settings(ValueLearningSettings):
    """What every kind of TD3 has."""

    name: str = ""
    """The algorithm."""
    policy_delay: int = Field(2, ge=1)
    """Updates of the critics for each update of the policy and of all targets."""
    target_noise: float = Field(0.2, ge=0)
    """σ of the noise on target actions, in units of half the action range."""
    target_noise_clip: float = Field(0.5, ge=0)
    """c: that noise is cut to ±c."""


@final
@dataclass
class TargetNoise:
    """ε ~ N(0, std²), cut to ±ceiling: target policy smoothing. Drawn from a stream of its own, which is state."""

    std: Static[float]
    ceiling: Static[float]
    stream: Tensor
    """Where the stream stands, as `Noise` holds it."""

    @classmethod
    def seeded(cls, std: float, ceiling: float, seed: int) -> "TargetNoise":
        return cls(std, ceiling, Noise.named(seed, "target_noise").state)

    def smoothed(self, action: Tensor) -> Tensor:
        """ã = clip(a + clip(ε, ±ceiling), ±1) [B, A]."""
        noise = self.std * Noise(self.stream).normal(*action.shape).to(action.device)
        return (action + noise.clamp(-self.ceiling, self.ceiling)).clamp(-1.0, 1.0)


class TD3Networks(NamedTuple):
    """What every kind of TD3 is made of."""

    policy: Actor
    policy_target: Target[Actor]
    critic: QEnsemble
    critic_target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    noise: TargetNoise


def build_td3(
    settings: TD3Settings,
    actor: ActorSettings,
    critic: CriticSettings,
    context: BuildContext,
    builder: NetworkBuilder,
) -> TD3Networks:
    """Fresh networks, their targets and optimisers, and noise."""
    critics = builder.q_ensemble(critic, members=settings.critics)
    policy = builder.actor(actor, critic=critics)
    return TD3Networks(
        policy,
        Target.of(policy),
        critics,
        Target.of(critics),
        actor_adam(policy, settings, context, settings.policy_delay),
        adam_for(critics, settings.critic_optimizer, context),
        TargetNoise.seeded(settings.target_noise, settings.target_noise_clip, builder.seed),
    )


@torch.no_grad()
def smoothed_next(
    policy_target: Target[Actor], critic_target: Target[QEnsemble], noise: TargetNoise, seen_next: Seen
) -> tuple[Tensor, Tensor]:
    """ã' [B, A], and min_j Q̄_j(s',ã') [B]."""
    policy, critic = policy_target.network, critic_target.network
    next_action = noise.smoothed(policy.greedy(seen_next.by(policy)))
    values: Tensor = critic(seen_next.by(critic), next_action)
    return next_action, values.amin(0)
