"""Target networks: equal at birth, then following slowly."""

import copy
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import torch
from torch import Tensor, nn

from understudy.nn.perception import Perception

Network = TypeVar("Network", bound=nn.Module)


@final
@dataclass
class Target(Generic[Network]):
    """A frozen copy; `follow` is θ̄ ← θ̄ + τ(θ − θ̄)."""

    network: Network

    @classmethod
    def of(cls, network: Network) -> "Target[Network]":
        """What a perception that has nothing to learn gives is the same for both: it is shared, not copied."""
        shared = [part for part in network.modules() if isinstance(part, Perception) and part.fixed]
        twin = copy.deepcopy(network, {id(part): part for part in shared})
        return cls(twin.requires_grad_(False).train(False))  # a target never drops units

    @torch.no_grad()
    def follow(self, online: Network, rate: float | Tensor) -> None:
        for mine, theirs in zip(self.network.parameters(), online.parameters(), strict=True):
            mine.lerp_(theirs, rate)
