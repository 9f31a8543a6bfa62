"""Adam as one fused kernel, and learning-rate schedules."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.state import Static


@final
@dataclass
class Adam:
    """Adam (β₁ .9, β₂ .999, ε 1e-8). `minimise` takes the gradient of a loss and steps."""

    parameters: Static[list[Tensor]]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    count: Tensor

    @classmethod
    def over(cls, parameters: Iterable[nn.Parameter]) -> "Adam":
        owned: list[Tensor] = list(parameters)
        first, second = ([torch.zeros_like(p, requires_grad=False) for p in owned] for _ in range(2))
        return cls(owned, first, second, torch.zeros(()))

    @torch.no_grad()
    def minimise(self, loss: Tensor, learning_rate: float) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)
        # torch.optim.Adam(fused=True) runs this kernel too, behind more Python than a small update can pay.
        torch._fused_adam_(
            self.parameters,
            gradients,
            self.first_moments,
            self.second_moments,
            [],
            [self.count.add_(1)] * len(self.parameters),
            lr=learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


def cosine_decay(initial: float, update: int, horizon: int) -> float:
    """Learning rate of update 0, 1, …: half a cosine from `initial` to 0 at the horizon."""
    return 0.5 * initial * (1.0 + math.cos(math.pi * min(update, horizon) / horizon))
