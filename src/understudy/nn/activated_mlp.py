"""A multilayer perceptron with tanh, ELU or ReLU, as one node of the autograd graph over one flat parameter.

    forward    h_k = f(h_{k-1}·W_k + b_k),   y = h_L·W + b
    backward   ∂W_k = h_{k-1}ᵀ·δ_k,   ∂b_k = Σ_batch δ_k,   δ_{k-1} = (δ_k·W_kᵀ) ∘ f′(h_{k-1})

Layers start orthogonal with zero biases: gain √2 in hidden ones, also before tanh, as PPO's implementations have it; in
the last one a gain of the caller's: 0.01 lets a policy start in the middle of its range, 1 suits a value.
"""

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from understudy.core.settings import Settings, Widths
from understudy.nn.activations import Activation, activate, elu_, tanh_of_minus_double, through_activation
from understudy.nn.init import orthogonal
from understudy.nn.plain_mlp import NARROW, Layer, Layout

ACTOR_GAIN, VALUE_GAIN = 0.01, 1.0
"""Of the last layer."""

MANY, FEW = 128, 12
"""Rows from which, and outputs below which, a layer is computed the other way round."""


class TrunkSettings(Settings):
    """The shape of a trunk."""

    hidden: Widths = (64, 64)
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
        self._scratch: list[tuple[Tensor, list[Layer]]] = []
        """Room for one gradient and its views, made when it is first asked for."""
        *hidden, output = self.layers()
        for layer in hidden:
            orthogonal(layer.weight, math.sqrt(2.0), rng)
        orthogonal(output.weight, gain, rng)
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
            outputs = layer_outputs(rows, self.layers(), self.activation)[-1]
        return outputs.view(*values.shape[:-1], outputs.shape[-1])

    @property
    def plain(self) -> bool:
        """Nothing but products and activations: `layer_outputs` and `write_gradient` are all there is to it."""
        return not self.norms

    def outputs(self, rows: Tensor) -> Tensor:
        """`forward` of rows [B, inputs], with gradients switched off by the caller, and nothing around it."""
        if self.plain:
            return layer_outputs(rows, self.layers(), self.activation)[-1]
        return self._layer_by_layer(rows, self.layers())

    def gradient_room(self) -> tuple[Tensor, list[Layer]]:
        """A flat buffer for one gradient and its views by layer, the same every time: for `write_gradient`."""
        flat, into = self._scratch[0] if self._scratch else (self.flat, self.layers())
        alike = (flat.device, flat.dtype) == (self.flat.device, self.flat.dtype)
        if not (self._scratch and alike and into[0].weight.data_ptr() == flat.data_ptr()):  # first, moved, or copied
            flat = torch.zeros_like(self.flat, requires_grad=False)
            self._scratch = [(flat, self.layout.layers(flat))]
        return self._scratch[0]

    def _layer_by_layer(self, values: Tensor, layers: list[Layer]) -> Tensor:
        *hidden, output = layers
        for number, layer in enumerate(hidden):
            values = values @ layer.weight + layer.bias
            values = activate(self.norms[number](values) if self.norms else values, self.activation)
        return values @ output.weight + output.bias


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, flat: Tensor, layout: Layout, layers: list[Layer], activation: Activation
    ) -> Tensor:
        *hidden, output = layer_outputs(rows, layers, activation)
        ctx.save_for_backward(rows, flat)  # torch refuses a backward pass after either was written to
        ctx.hidden, ctx.layout, ctx.layers, ctx.activation = hidden, layout, layers, activation
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        rows, _ = ctx.saved_tensors
        gradient, into = ctx.layout.blank(delta)
        delta = write_gradient([rows, *ctx.hidden], delta, ctx.layers, into, ctx.activation)
        below = _through_layer(delta, ctx.layers[0].weight) if ctx.needs_input_grad[0] else None
        return below, gradient, None, None, None


def write_gradient(
    inputs: list[Tensor], delta: Tensor, layers: list[Layer], into: list[Layer], activation: str
) -> Tensor:
    """Gradients of every layer into the views of a flat buffer; gives δ of the first layer."""
    for number in range(len(layers) - 1, -1, -1):
        _weight_gradient(inputs[number], delta, into[number].weight)
        torch.sum(delta, dim=0, out=into[number].bias)
        if number > 0:
            delta = through_activation(_through_layer(delta, layers[number].weight), inputs[number], activation)
    return delta


def _through_layer(delta: Tensor, weight: Tensor) -> Tensor:
    """δ·Wᵀ [B, inputs]; of one output it is no product of matrices."""
    return delta * weight.mT if weight.shape[1] == 1 else delta @ weight.mT


def _weight_gradient(inputs: Tensor, delta: Tensor, out: Tensor, narrow: int = NARROW) -> None:
    """hᵀ·δ [inputs, outputs]; of few outputs (δᵀ·h)ᵀ, four times as fast."""
    if 1 < delta.shape[1] <= narrow:
        out.copy_(torch.mm(delta.mT, inputs).mT)
    else:
        torch.mm(inputs.mT, delta, out=out)


def layer_outputs(rows: Tensor, layers: list[Layer], activation: str) -> list[Tensor]:
    """Every layer's output; all but the last activated. Like `write_gradient` it can be compiled by TorchScript."""
    outputs: list[Tensor] = []
    units = rows
    for number, layer in enumerate(layers):
        last = number == len(layers) - 1
        units = _last_layer(units, layer) if last else _activated_layer(units, layer, activation)
        outputs.append(units)
    return outputs


def _activated_layer(units: Tensor, layer: Layer, activation: str) -> Tensor:
    """f(h·W + b); tanh x as 1 − 2·sigmoid(−2x), whose inner −2 costs nothing inside the product."""
    if activation == "tanh":
        return tanh_of_minus_double(torch.addmm(layer.bias, units, layer.weight, beta=-2, alpha=-2))
    units = torch.mm(units, layer.weight).add_(layer.bias)
    return elu_(units) if activation == "elu" else units.relu_()


def _last_layer(units: Tensor, layer: Layer, many: int = MANY, few: int = FEW) -> Tensor:
    """h·W + b; of few outputs and many rows (Wᵀ·hᵀ)ᵀ + b, twice as fast."""
    outputs = layer.weight.shape[1]
    if 1 < outputs < few and len(units) >= many:
        return torch.add(torch.mm(layer.weight.mT, units.mT).mT, layer.bias, out=units.new_empty([len(units), outputs]))
    return torch.mm(units, layer.weight).add_(layer.bias)  # as TorchScript reads an addmm
