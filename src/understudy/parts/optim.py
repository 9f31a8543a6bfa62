"""Adam as one fused kernel, and learning-rate schedules."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from understudy.core.state import Static

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Moments(NamedTuple):
    """What an `Adam` holds of some parameters, for functions that TorchScript compiles."""

    parameters: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: Tensor
    norm: Tensor


@final
@dataclass
class Adam:
    """Adam (β₁ .9, β₂ .999, ε 1e-8). `minimise` takes the gradient of a loss and steps."""

    parameters: Static[list[Tensor]]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    count: Tensor
    norm: Static[Tensor]
    """Of the last gradient, over all parameters: [] to look at."""

    @classmethod
    def over(cls, parameters: Iterable[nn.Parameter]) -> "Adam":
        owned: list[Tensor] = list(parameters)
        first, second = ([p.new_zeros(p.shape) for p in owned] for _ in range(2))
        count, norm = (torch.zeros((), device=owned[0].device) for _ in range(2))
        return cls(owned, first, second, count, norm)

    @torch.no_grad()
    def minimise(self, loss: Tensor, learning_rate: float | Tensor, *, max_norm: float | None = None) -> None:
        """One step; a gradient of more than `max_norm` is scaled down to it."""
        self.step(torch.autograd.grad(loss, self.parameters), learning_rate, max_norm=max_norm)

    @torch.no_grad()
    def step(
        self, gradients: Sequence[Tensor], learning_rate: float | Tensor, *, max_norm: float | None = None
    ) -> None:
        """The same from the gradient of each parameter."""
        norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
        self.norm.copy_(norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms)))
        if max_norm is not None:
            gradients = torch._foreach_mul(list(gradients), (max_norm / self.norm.clamp(min=max_norm)))
        self.count.add_(1)
        if torch.compiler.is_compiling():
            self._step(gradients, learning_rate)
        else:
            self._fused_step(gradients, learning_rate)

    def moments(self, parameters: list[nn.Parameter]) -> Moments:
        """Of its parameters in this order, outside the graph."""
        places = [next(place for place, mine in enumerate(self.parameters) if mine is one) for one in parameters]
        if sorted(places) != list(range(len(self.parameters))):
            raise ValueError("moments are of all parameters, each once")
        first, second = ([each[place] for place in places] for each in (self.first_moments, self.second_moments))
        return Moments([one.detach() for one in parameters], first, second, self.count, self.norm)

    def _step(self, gradients: Sequence[Tensor], learning_rate: float | Tensor) -> None:
        """The equations, for the compiler to fuse with what surrounds them."""
        first_bias, second_bias = (1.0 - beta ** self.count.double() for beta in (BETA_1, BETA_2))
        moments = zip(self.first_moments, self.second_moments, strict=True)
        for parameter, gradient, (first, second) in zip(self.parameters, gradients, moments, strict=True):
            first.lerp_(gradient, 1.0 - BETA_1)
            second.mul_(BETA_2).addcmul_(gradient, gradient, value=1.0 - BETA_2)
            parameter.sub_(learning_rate * (first / first_bias) / ((second / second_bias).sqrt() + EPSILON))

    def _fused_step(self, gradients: Sequence[Tensor], learning_rate: float | Tensor) -> None:
        """The kernel behind torch.optim.Adam(fused=True), without its Python, which a small update cannot pay."""
        torch._fused_adam_(  # type: ignore[call-overload]
            self.parameters,
            gradients,
            self.first_moments,
            self.second_moments,
            [],
            [self.count] * len(self.parameters),
            lr=learning_rate,
            beta1=BETA_1,
            beta2=BETA_2,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


def clipped_step(
    moments: Moments,
    gradients: list[Tensor],
    learning_rate: Tensor,
    max_norm: float,
    beta_1: float = BETA_1,
    beta_2: float = BETA_2,
    epsilon: float = EPSILON,
) -> None:
    """`Adam.step` to the bit, for functions that TorchScript compiles."""
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
    moments.norm.copy_(norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms)))
    cut = torch._foreach_mul(gradients, moments.norm.clamp(min=max_norm).reciprocal() * max_norm)
    moments.steps.add_(1)
    counts = [moments.steps for _ in gradients]
    torch._fused_adam_(
        moments.parameters,
        cut,
        moments.first,
        moments.second,
        [],
        counts,
        lr=learning_rate,
        beta1=beta_1,
        beta2=beta_2,
        weight_decay=0.0,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def cosine_decay(initial: float, update: Tensor, horizon: int) -> Tensor:
    """Learning rate [] of update 0, 1, …: half a cosine from `initial` to 0 at the horizon."""
    return 0.5 * initial * (1.0 + torch.cos(update.clamp(max=horizon) * (math.pi / horizon)))
