"""Adam on one flat buffer: the parameters of a network are views of it, so a step is one fused kernel."""

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

    parameters: Static[list[nn.Parameter]]
    flat: Static[Tensor]
    """All parameters, one after another; they are views of it."""
    gradient: Static[Tensor]
    first_moment: Tensor
    second_moment: Tensor
    count: Tensor

    @classmethod
    def over(cls, parameters: Iterable[nn.Parameter]) -> "Adam":
        owned = list(parameters)
        flat = flatten(owned)
        return cls(owned, flat, torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros(()))

    def minimise(self, loss: Tensor, learning_rate: float) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=self.gradient)
        torch._fused_adam_(
            [self.flat],
            [self.gradient],
            [self.first_moment],
            [self.second_moment],
            [],
            [self.count.add_(1)],
            lr=learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


@torch.no_grad()
def flatten(parameters: list[nn.Parameter]) -> Tensor:
    """Move parameters into one buffer and make each a view of it."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    start = 0
    for parameter in parameters:
        parameter.data = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return flat


def cosine_decay(initial: float, update: int, horizon: int) -> float:
    """Learning rate of update 0, 1, …: half a cosine from `initial` to 0 at the horizon."""
    return 0.5 * initial * (1.0 + math.cos(math.pi * min(update, horizon) / horizon))
