"""Target networks: equal at birth, then following slowly."""

import copy
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import torch
from torch import Tensor, nn

from understudy.core.state import Static
from understudy.parts.optim import flatten

Network = TypeVar("Network", bound=nn.Module)


@final
@dataclass
class Target(Generic[Network]):
    """A frozen copy whose parameters are one flat buffer; `follow` is θ̄ ← θ̄ + τ(θ − θ̄)."""

    network: Network
    flat: Static[Tensor]

    @classmethod
    def of(cls, network: Network) -> "Target[Network]":
        twin = copy.deepcopy(network).requires_grad_(False).eval()  # a target never drops units
        return cls(twin, flatten(list(twin.parameters())))

    @torch.no_grad()
    def follow(self, online: Tensor, rate: float) -> None:
        """Move toward the online network's flat parameters."""
        self.flat.lerp_(online, rate)
