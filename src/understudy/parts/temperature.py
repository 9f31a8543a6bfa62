"""Numbers above 0 that are learned by their logarithm: SAC's entropy weight and a Lagrange multiplier."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.losses.soft import multiplier_loss, temperature_loss
from understudy.parts.optim import Adam

CEILING = 1e6
"""No Lagrange multiplier counts more than this."""


@final
@dataclass
class Temperature:
    """α = exp(log α), moved until the policy's entropy is its target."""

    log_alpha: Tensor
    optimizer: Adam

    @classmethod
    def starting_at(cls, alpha: float, device: torch.device, waits: int = 0) -> "Temperature":
        """So many steps at first move nothing."""
        return cls(*_learned(math.log(alpha), device, waits))

    def value(self) -> Tensor:
        """α [], a constant."""
        return self.log_alpha.detach().exp()

    def follow(self, log_prob: Tensor, target_entropy: float | Tensor, learning_rate: float) -> None:
        """One step from the log-probabilities [B] of actions the policy drew, or from what they are on average."""
        self.optimizer.minimise(temperature_loss(self.log_alpha, log_prob, target_entropy).mean(), learning_rate)


@final
@dataclass
class Multiplier:
    """λ = min(exp(log λ), 1e6), raised while a constraint is violated and lowered while it is met."""

    log_multiplier: Tensor
    optimizer: Adam

    @classmethod
    def starting_at(cls, log_multiplier: float, device: torch.device) -> "Multiplier":
        return cls(*_learned(log_multiplier, device))

    def value(self) -> Tensor:
        """λ [], a constant."""
        return self.log_multiplier.detach().exp()

    def follow(self, violation: Tensor, learning_rate: float) -> None:
        """One step from how far the constraint [K, B] is above 0."""
        self.optimizer.minimise(multiplier_loss(self.log_multiplier.exp(), violation).mean(), learning_rate)
        with torch.no_grad():  # the logarithm is cut, not λ: at a cut λ the slope is 0, and it could never come down
            self.log_multiplier.clamp_(max=math.log(CEILING))


def _learned(start: float, device: torch.device, waits: int = 0) -> tuple[nn.Parameter, Adam]:
    number = nn.Parameter(torch.tensor(start, device=device))
    return number, Adam.over([number], waits=waits)
