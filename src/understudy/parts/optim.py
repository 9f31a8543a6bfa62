"""Adam on one flat buffer: the parameters of a network are views of it, so a step is one fused kernel."""

import math
from collections.abc import Iterable, Sequence
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
    first_moment: Tensor
    second_moment: Tensor
    count: Tensor
    views: Static[tuple[list[Tensor], list[Tensor], list[Tensor]]]
    """Parameters and moments as the fused kernel takes them."""

    @classmethod
    def over(cls, parameters: Iterable[nn.Parameter]) -> "Adam":
        owned = list(parameters)
        flat = flatten(owned)
        first, second = torch.zeros_like(flat), torch.zeros_like(flat)
        views = ([p.detach() for p in owned], split(first, owned), split(second, owned))
        return cls(owned, flat, first, second, torch.zeros(()), views)

    def minimise(self, loss: Tensor, learning_rate: float) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)
        values, first, second = self.views
        torch._fused_adam_(
            values,
            list(gradients),
            first,
            second,
            [],
            [self.count.add_(1)] * len(values),
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
    for parameter, view in zip(parameters, split(flat, parameters), strict=True):
        parameter.data = view
    return flat


def split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat buffer with the shapes of `like`, one after another."""
    parts = torch.split(flat, [tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]


def cosine_decay(initial: float, update: int, horizon: int) -> float:
    """Learning rate of update 0, 1, …: half a cosine from `initial` to 0 at the horizon."""
    return 0.5 * initial * (1.0 + math.cos(math.pi * min(update, horizon) / horizon))
