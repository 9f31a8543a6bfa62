"""The networks of PPO: what they see, their shapes, and what they share.

Neither drops units. A ratio compares what the policy thought when it played with what it thinks now, an advantage what
the critic thought: both shall differ by what was learned, not by chance.
"""

from typing import Annotated

import torch
from pydantic import AfterValidator, Field

from understudy.core.protocols import BuildContext
from understudy.core.rng import stream
from understudy.core.settings import Widths
from understudy.core.spec import Spec
from understudy.nn.activations import Activation
from understudy.nn.actor import Actor, EstimatingActorSettings
from understudy.nn.critic import CriticSettings
from understudy.nn.distributions import OnPolicyDistributionSettings
from understudy.nn.normalization import OnPolicyNormalizerSettings
from understudy.nn.perception import Perception, check_borrows
from understudy.nn.value_network import ValueNetwork, check_alike


def _nothing_dropped(share: float) -> float:
    if share:
        raise ValueError(
            "PPO compares what its networks thought before with what they think now, and units that are dropped would "
            f"make both a matter of chance: got {share:g}, expected 0. A stage before it (bc) may have dropout"
        )
    return share


NoDropout = Annotated[float, Field(ge=0, lt=1), AfterValidator(_nothing_dropped)]


class OnPolicyActorSettings(EstimatingActorSettings):
    """What the policy sees, its shape, and how it draws."""

    hidden: Widths = (64, 64)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "tanh"
    """Between layers: `tanh`, `elu`, `relu`, `gelu`, `silu`, `leaky_relu` or `selu`."""
    dropout: NoDropout = 0.0
    """None."""
    output_gain: float = Field(0.01, gt=0)
    """Of the last layer where layers start orthogonal: so small that the policy starts in the middle of its range."""
    normalizer: OnPolicyNormalizerSettings = OnPolicyNormalizerSettings()
    """How."""
    distribution: OnPolicyDistributionSettings = OnPolicyDistributionSettings()
    """Of continuous actions: a word (`gaussian`, `tanh_mean_gaussian`, `state_gaussian`, `tanh_gaussian`, `beta`), or a
    group with its limits. Choices are always categorical."""


class OnPolicyCriticSettings(CriticSettings):
    """What the value function sees, its shape, and what it shares with the actor."""

    hidden: Widths = (64, 64)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "tanh"
    """Between layers: `tanh`, `elu`, `relu`, `gelu`, `silu`, `leaky_relu` or `selu`."""
    dropout: NoDropout = 0.0
    """None."""
    output_gain: float = Field(1.0, gt=0)
    """Of the last layer where layers start orthogonal."""
    normalizer: OnPolicyNormalizerSettings = OnPolicyNormalizerSettings()
    """How."""
    share_encoder: bool = False
    """Inputs that the actor sees, too, and encodes alike have one encoder for both, and both losses train it."""
    share_memory: bool = False
    """One memory for both, and with it everything below the trunk: then the critic sees what the actor sees, and its
    other settings but the trunk's say the same."""


def build_networks(
    actor: OnPolicyActorSettings, critic: OnPolicyCriticSettings, context: BuildContext
) -> tuple[Actor, ValueNetwork]:
    """Fresh ones."""
    spec, seed = context.spec, context.seed
    policy = Actor(spec, actor, stream(seed, "init/actor"), where="algo.actor")
    value = make_value(spec, critic, stream(seed, "init/critic"), policy.perception, "algo.critic")
    return policy.to(context.device), value.to(context.device)


def make_value(
    spec: Spec, settings: OnPolicyCriticSettings, rng: torch.Generator, actor: Perception, where: str = "critic"
) -> ValueNetwork:
    """A value function beside an actor of this perception."""
    if settings.share_memory:
        check_alike(settings, actor, where)
        return ValueNetwork(spec, settings, rng, perception=actor, shares=True, where=where)
    own = Perception(spec, settings, rng, where, actor if settings.share_encoder else None)
    if settings.share_encoder:
        check_borrows(own, where)
    return ValueNetwork(spec, settings, rng, perception=own, where=where)
