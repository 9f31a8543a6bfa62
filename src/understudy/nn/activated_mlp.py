"""A multilayer perceptron with tanh, ELU or ReLU, as one node of the autograd graph over one flat parameter.

    forward    h_k = f(h_{k-1}·W_k + b_k),   y = h_L·W + b
    backward   ∂W_k = h_{k-1}ᵀ·δ_k,   ∂b_k = Σ_batch δ_k,   δ_{k-1} = (δ_k·W_kᵀ) ∘ f′(h_{k-1})

Layers start orthogonal with zero biases: gain √2 in hidden ones, also before tanh, as PPO's implementations have it; in
the last one a gain of the caller's: 0.01 lets a policy start in the middle of its range, 1 suits a value.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from understudy.core.settings import Settings
from understudy.nn.activations import Activation, activate, activate_, through_activation
from understudy.nn.plain_mlp import Layer, Layout

ACTOR_GAIN, VALUE_GAIN = 0.01, 1.0
"""Of the last layer."""


class TrunkSettings(Settings):
    """The shape of a trunk."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "tanh"
    """Between layers: `tanh`, `elu` or `relu`."""
    layer_norm: bool = Field(False)
    """Layer normalisation before each activation."""


class ActivatedMLP(nn.Module):
    """[..., inputs] → [..., outputs], nothing after the last layer."""

    def __init__(
        self, inputs: int, outputs: int, settings: TrunkSettings, rng: torch.Generator, *, gain: float = VALUE_GAIN
    ) -> None:
        super().__init__()
        self.activation = settings.activation
        self.layout = Layout([inputs, *settings.hidden, outputs], None)
        self.flat = nn.Parameter(torch.zeros(self.layout.size))
        self._views: list[Layer] = []
        *hidden, output = self.layers()
        for layer in hidden:
            nn.init.orthogonal_(layer.weight, gain=math.sqrt(2.0), generator=rng)
        nn.init.orthogonal_(output.weight, gain=gain, generator=rng)
        norms = [nn.LayerNorm(width) for width in settings.hidden] if settings.layer_norm else []
        self.norms = nn.ModuleList(norms)

    def layers(self) -> list[Layer]:
        """Weights and biases as views of `flat`, outside the graph."""
        if not self._views or self._views[0].weight.data_ptr() != self.flat.data_ptr():  # moved, or a deep copy
            self._views = self.layout.layers(self.flat.detach())
        return self._views

    def forward(self, values: Tensor) -> Tensor:
        if self.norms or torch.compiler.is_compiling():
            return self._layer_by_layer(values, self.layout.layers(self.flat))
        rows = values.reshape(-1, values.shape[-1])
        if torch.is_grad_enabled():
            outputs: Tensor = _Activated.apply(rows, self.flat, self.layout, self.layers(), self.activation)  # type: ignore[no-untyped-call]
        else:
            outputs = _outputs(rows, self.layers(), self.activation)[-1]
        return outputs.view(*values.shape[:-1], outputs.shape[-1])

    def _layer_by_layer(self, values: Tensor, layers: list[Layer]) -> Tensor:
        *hidden, output = layers
        for number, layer in enumerate(hidden):
            values = values @ layer.weight + layer.bias
            values = activate(self.norms[number](values) if self.norms else values, self.activation)
        return values @ output.weight + output.bias


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, flat: Tensor, layout: Layout, layers: Sequence[Layer], activation: Activation
    ) -> Tensor:
        *hidden, output = _outputs(rows, layers, activation)
        ctx.save_for_backward(rows, flat)  # torch refuses a backward pass after either was written to
        ctx.hidden, ctx.layout, ctx.layers, ctx.activation = hidden, layout, layers, activation
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        rows, _ = ctx.saved_tensors
        gradient, into = ctx.layout.blank(delta)
        inputs = [rows, *ctx.hidden]
        for number in range(len(ctx.hidden), -1, -1):
            weight = ctx.layers[number].weight
            torch.mm(inputs[number].mT, delta, out=into[number].weight)
            torch.sum(delta, dim=0, out=into[number].bias)
            if number > 0:
                delta = through_activation(_through_layer(delta, weight), inputs[number], ctx.activation)
        return (
            (_through_layer(delta, ctx.layers[0].weight) if ctx.needs_input_grad[0] else None),
            gradient,
            None,
            None,
            None,
        )


def _through_layer(delta: Tensor, weight: Tensor) -> Tensor:
    """δ·Wᵀ [B, inputs]; of one output it is no product of matrices."""
    return delta * weight.mT if weight.shape[1] == 1 else delta @ weight.mT


def _outputs(rows: Tensor, layers: Sequence[Layer], activation: Activation) -> list[Tensor]:
    """Every layer's output; all but the last activated."""
    outputs: list[Tensor] = []
    for layer in layers:
        units = activate_(outputs[-1], activation) if outputs else rows
        outputs.append(torch.addmm(layer.bias, units, layer.weight))
    return outputs
