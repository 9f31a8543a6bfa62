"""Pieces of TD3 (Fujimoto, van Hoof and Meger 2018): deterministic actors and smoothed target actions."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from understudy.core.state import Static
from understudy.nn.actor import Actor, ActorSettings


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
    stream: torch.Generator

    def draw(self, action: Tensor) -> Tensor:
        """Unit normals in the shape of `action` [B, A]; `smoothed` scales them."""
        return torch.randn(action.shape, generator=self.stream).to(action.device)

    def smoothed(self, action: Tensor, draws: Tensor) -> Tensor:
        """ã = clip(a + clip(std·draws, ±ceiling), ±1) [B, A]."""
        noise = (self.std * draws).clamp(-self.ceiling, self.ceiling)
        return (action + noise).clamp(-1.0, 1.0)


def policy_action(policy: Actor, state: Tensor) -> Tensor:
    """π(s) [B, A] in policy space, with its gradient."""
    return policy.head.mode(policy.features(state))
