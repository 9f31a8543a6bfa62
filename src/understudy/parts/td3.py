"""Pieces of TD3 (Fujimoto, van Hoof and Meger 2018): deterministic actors and smoothed target actions."""

from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from understudy.core.state import Static
from understudy.nn.actor import Actor, ActorSettings
from understudy.parts.noise import Noise


class DeterministicActorSettings(ActorSettings):
    """The shape of a deterministic policy."""

    head: Literal["deterministic"] = "deterministic"
    """a = tanh(f(s)); there is no other here."""


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


def policy_action(policy: Actor, state: Tensor) -> Tensor:
    """π(s) [B, A] in policy space, with its gradient."""
    return policy.head.mode(policy.features(state))
