"""Pieces of SAC (Haarnoja et al. 2018): policies with a density, and critics asked about many actions of each state."""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from understudy.core.protocols import BuildContext
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.critic import CriticSettings, QEnsemble
from understudy.nn.distributions import DistributionSettings
from understudy.nn.distributions.gaussians import TanhGaussian
from understudy.nn.init import Init
from understudy.nn.perception import Seen
from understudy.parts.networks import NetworkBuilder, adam_for
from understudy.parts.noise import Noise
from understudy.parts.optim import Adam
from understudy.parts.target import Target
from understudy.parts.temperature import Temperature
from understudy.parts.value_learning import ValueLearningSettings, actor_adam


class TanhGaussianSettings(DistributionSettings):
    """a = tanh(u), u ~ N(μ(s), σ(s)²); there is no other here."""

    kind: Literal["tanh_gaussian"] = "tanh_gaussian"
    """`tanh_gaussian`: this algorithm climbs its critics with actions drawn inside the box."""


class TanhGaussianActorSettings(ActorSettings):
    """What a policy that is tanh of a Gaussian sees, and its shape."""

    distribution: TanhGaussianSettings = TanhGaussianSettings()
    """`tanh_gaussian`, or a group with its limits."""
    init: Init = "default"
    """`default` (torch's Linear), `orthogonal`, `small_output` or `xavier_output`."""


class WideTanhGaussianSettings(TanhGaussianSettings):
    """The same with SAC's limits."""

    log_std_min: float = -20.0
    """log σ never falls below."""


class SoftActorSettings(TanhGaussianActorSettings):
    """What the policy sees, and its shape."""

    distribution: WideTanhGaussianSettings = WideTanhGaussianSettings()
    """`tanh_gaussian`, or a group with its limits."""


class SoftCriticSettings(CriticSettings):
    """What the critics see, and their shape."""

    init: Init = "default"
    """`default` (torch's Linear), `orthogonal`, `small_output` or `xavier_output`."""


class SoftSettings(ValueLearningSettings):
    """What every kind of SAC has that draws its actions."""

    name: str = ""
    """The algorithm."""
    entropy_weight: float = Field(1.0, gt=0)
    """α, the temperature, at the start: what a nat of entropy is worth, in units of reward."""
    entropy_learning_rate: float = Field(3e-4, ge=0)
    """Adam's step size for log α; 0 leaves it as it is."""
    entropy_target: float = -1.0
    """H̄ for each action dimension."""
    actor: SoftActorSettings = SoftActorSettings()
    """The policy network."""
    critic: SoftCriticSettings = SoftCriticSettings()
    """The critics."""


class SoftNetworks(NamedTuple):
    """What every kind of SAC is made of."""

    policy: Actor
    critic: QEnsemble
    target: Target[QEnsemble]
    policy_optimizer: Adam
    critic_optimizer: Adam
    temperature: Temperature
    backup_noise: Noise
    actor_noise: Noise


def build_soft(settings: SoftSettings, context: BuildContext, policy_delay: int = 1) -> SoftNetworks:
    """Fresh networks, target critics, optimisers, temperature and noise."""
    builder = NetworkBuilder.of(context)
    critic = builder.q_ensemble(settings.critic, members=settings.critics)
    policy = builder.actor(settings.actor, critic=critic)
    return SoftNetworks(
        policy,
        critic,
        Target.of(critic),
        actor_adam(policy, settings, context, policy_delay),
        adam_for(critic, settings.critic_optimizer, context),
        Temperature.starting_at(settings.entropy_weight, context.device, settings.critic_warmup // policy_delay),
        Noise.named(context.seed, "noise/backup"),
        Noise.named(context.seed, "noise/actor"),
    )


def drawn_actions(policy: Actor, seen: Seen, noise: Noise) -> tuple[Tensor, Tensor]:
    """ã ~ π(·|s) [B, A] and log π(ã|s) [B], both with gradient."""
    features = policy.features(seen.by(policy))
    return TanhGaussian.draw(features, noise.normal(len(features), features.shape[-1] // 2).to(features))


BLOCK_ROWS = 512
"""Rows of a pass: activations that fit the cache, in few passes."""


def values_of_many(critic: QEnsemble, state: Tensor, actions: Tensor) -> Tensor:
    """Q_j(s_b, a_mb) [K, M, B] of states [B, S] and M actions for each [M, B, A], all critics at once.

    A pass takes as many actions as keep its activations in the cache: thirty actions of 256 states take, compiled, a
    sixth less time in fifteen passes than in one.
    """
    count = max(1, BLOCK_ROWS // len(state))
    blocks = [_values(critic, state, block) for block in torch.split(actions, count)]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)


def _values(critic: QEnsemble, state: Tensor, actions: Tensor) -> Tensor:
    count, rows, _ = actions.shape
    states = state.expand(count, *state.shape)
    values: Tensor = critic(states.flatten(0, 1), actions.flatten(0, 1))
    return values.view(-1, count, rows)
