"""Adam and AdamW as one fused kernel, with clipped gradients and learning-rate schedules."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self, final

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from understudy.core.ranks import averaged
from understudy.core.settings import Settings
from understudy.core.state import Static

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
RateSchedule = Literal["constant", "linear", "cosine"]


class OptimizerSettings(Settings):
    """How a network is optimised, beside its learning rate."""

    kind: Literal["adam", "adamw"] = "adam"
    """`adam`, or `adamw` with decoupled weight decay."""
    weight_decay: float = Field(0.0, ge=0)
    """Of `adamw`: the share of every parameter that a step of learning rate 1 would take away."""
    max_grad_norm: float | None = Field(None, gt=0)
    """A gradient of a larger norm, over all parameters of the network, is scaled down to it; null is no limit."""
    schedule: RateSchedule = "constant"
    """Of the learning rate: `constant`, or to 0 over the run's updates along a straight line (`linear`) or half a
    cosine (`cosine`)."""

    @model_validator(mode="after")
    def _decay_needs_adamw(self) -> Self:
        if (self.kind == "adamw") != (self.weight_decay > 0):
            raise ValueError("adamw has a weight_decay above 0 (torch's is 0.01), and adam has none: weight_decay=0")
        return self


PLAIN = OptimizerSettings()


class ActorCriticSettings(Settings):
    """How the networks of an actor-critic are optimised."""

    FORMER: ClassVar = {"actor_schedule": "actor_optimizer.schedule"}

    actor_learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size for π, at the start of its schedule."""
    actor_optimizer: OptimizerSettings = OptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""
    critic_learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size for Q, at the start of its schedule."""
    critic_optimizer: OptimizerSettings = OptimizerSettings()
    """Its kind, weight decay, gradient clipping and schedule."""


class AdamState(NamedTuple):
    """What an `Adam` holds of some parameters, for functions that TorchScript compiles."""

    parameters: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: Tensor
    norm: Tensor


@final
@dataclass
class Adam:
    """Adam or AdamW (β₁ .9, β₂ .999, ε 1e-8). `minimise` takes the gradient of a loss and steps.

    A learning rate is what its schedule begins with; the clock is the count of its own steps.
    """

    parameters: Static[list[Tensor]]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    count: Tensor
    norm: Tensor
    """Of the last gradient, over all parameters: [] to look at, also long after it, so that it is state."""
    settings: Static[OptimizerSettings] = PLAIN
    steps_planned: Static[int] = 0
    """Where a schedule ends."""
    waits: Static[int] = 0
    """Steps at first that move no parameter; moments form in them, and the clock runs."""

    @classmethod
    def over(
        cls,
        parameters: Iterable[nn.Parameter],
        settings: OptimizerSettings = PLAIN,
        steps_planned: int = 0,
        waits: int = 0,
    ) -> "Adam":
        owned: list[Tensor] = list(parameters)
        first, second = ([p.new_zeros(p.shape) for p in owned] for _ in range(2))
        count, norm = (torch.zeros((), device=owned[0].device) for _ in range(2))
        return cls(owned, first, second, count, norm, settings, steps_planned, waits)

    @torch.no_grad()
    def minimise(self, loss: Tensor, learning_rate: float | Tensor, *, max_norm: float | None = None) -> None:
        """One step; a gradient of more than `max_norm` is scaled down to it."""
        self.step(torch.autograd.grad(loss, self.parameters), learning_rate, max_norm=max_norm)

    @torch.no_grad()
    def step(
        self, gradients: Sequence[Tensor], learning_rate: float | Tensor, *, max_norm: float | None = None
    ) -> None:
        """The same from the gradient of each parameter."""
        max_norm = self.settings.max_grad_norm if max_norm is None else max_norm
        learning_rate = self._scheduled(learning_rate)
        gradients = averaged(gradients)
        norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
        self.norm.copy_(norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms)))
        if max_norm is not None:
            gradients = torch._foreach_mul(list(gradients), (max_norm / self.norm.clamp(min=max_norm)))
        self.count.add_(1)
        if torch.compiler.is_compiling():
            self._step(gradients, learning_rate)
        else:
            self._fused_step(gradients, learning_rate)

    def _scheduled(self, learning_rate: float | Tensor) -> float | Tensor:
        """Of the next step."""
        schedule = self.settings.schedule
        if schedule != "constant":
            decay = cosine_decay if schedule == "cosine" else linear_decay
            learning_rate = decay(learning_rate, self.count, self.steps_planned)
        return learning_rate * (self.count >= self.waits) if self.waits else learning_rate

    @property
    def plain(self) -> bool:
        """Nothing but Adam: `clipped_step` is all there is to it."""
        return self.settings.kind == "adam" and self.settings.schedule == "constant" and not self.waits

    def state(self, parameters: list[nn.Parameter]) -> AdamState:
        """Of its parameters in this order, outside the graph."""
        places = [next(place for place, mine in enumerate(self.parameters) if mine is one) for one in parameters]
        if sorted(places) != list(range(len(self.parameters))):
            raise ValueError("the state is of all parameters, each once")
        first, second = ([each[place] for place in places] for each in (self.first_moments, self.second_moments))
        return AdamState([one.detach() for one in parameters], first, second, self.count, self.norm)

    def _step(self, gradients: Sequence[Tensor], learning_rate: float | Tensor) -> None:
        """The equations, for the compiler to fuse with what surrounds them."""
        # stacked, they are computed once; as two numbers, powers and all went into the loop over parameters
        first_bias, second_bias = torch.stack([1.0 - beta ** self.count.double() for beta in (BETA_1, BETA_2)]).unbind()
        moments = zip(self.first_moments, self.second_moments, strict=True)
        decay = self.settings.weight_decay
        for parameter, gradient, (first, second) in zip(self.parameters, gradients, moments, strict=True):
            if decay > 0:
                parameter.mul_(1.0 - learning_rate * decay)
            first.lerp_(gradient, 1.0 - BETA_1)
            second.mul_(BETA_2).addcmul_(gradient, gradient, value=1.0 - BETA_2)
            parameter.sub_(learning_rate * (first / first_bias) / ((second / second_bias).sqrt() + EPSILON))

    def _fused_step(self, gradients: Sequence[Tensor], learning_rate: float | Tensor) -> None:
        """The kernel behind torch.optim.Adam(fused=True), without its Python, which a small update cannot pay."""
        kernel = torch._fused_adam_ if self.settings.kind == "adam" else torch._fused_adamw_
        kernel(  # type: ignore[call-overload]
            self.parameters,
            gradients,
            self.first_moments,
            self.second_moments,
            [],
            [self.count] * len(self.parameters),
            lr=learning_rate,
            beta1=BETA_1,
            beta2=BETA_2,
            weight_decay=self.settings.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


def clipped_step(
    state: AdamState,
    gradients: list[Tensor],
    learning_rate: Tensor,
    max_norm: float,
    beta_1: float = BETA_1,
    beta_2: float = BETA_2,
    epsilon: float = EPSILON,
) -> None:
    """`Adam.step` to the bit, for functions that TorchScript compiles."""
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
    state.norm.copy_(norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms)))
    cut = torch._foreach_mul(gradients, state.norm.clamp(min=max_norm).reciprocal() * max_norm)
    state.steps.add_(1)
    counts = [state.steps for _ in gradients]
    torch._fused_adam_(
        state.parameters,
        cut,
        state.first,
        state.second,
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


def cosine_decay(initial: float | Tensor, update: Tensor, horizon: int) -> Tensor:
    """Learning rate [] of update 0, 1, …: half a cosine from `initial` to 0 at the horizon."""
    return 0.5 * initial * (1.0 + torch.cos(update.clamp(max=horizon) * (math.pi / horizon)))


def linear_decay(initial: float | Tensor, update: Tensor, horizon: int) -> Tensor:
    """Learning rate [] of update 0, 1, …: a straight line from `initial` to 0 at the horizon."""
    return initial * (1.0 - update.clamp(max=horizon) / horizon)
