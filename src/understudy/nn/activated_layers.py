"""A network with tanh, ELU or ReLU between its layers, as one node of the autograd graph over one flat parameter.

    forward    h_k = f(h_{k-1}·W_k + b_k),   y = h_L·W + b
    backward   ∂W_k = h_{k-1}ᵀ·δ_k,   ∂b_k = Σ_batch δ_k,   δ_{k-1} = (δ_k·W_kᵀ) ∘ f′(h_{k-1})

`layer_outputs` and `write_gradient` are of plain tensors, in no graph: TorchScript compiles them into PPO's steps.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from understudy.nn.activations import Activation, elu_, tanh_of_minus_double, through_activation
from understudy.nn.plain_mlp import NARROW, Layer, Layout

MANY, FEW = 128, 12
"""Rows from which, and outputs below which, a layer is computed the other way round."""


def activated_layers(rows: Tensor, flat: Tensor, layout: Layout, layers: list[Layer], activation: Activation) -> Tensor:
    """[B, inputs] → [B, outputs]; `layers` are the layout's views of `flat`."""
    if torch.is_grad_enabled():
        result: Tensor = _ActivatedLayers.apply(rows, flat, layout, layers, activation)  # type: ignore[no-untyped-call]
        return result
    return layer_outputs(rows, layers, activation)[-1]


class _ActivatedLayers(torch.autograd.Function):
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
        return below, gradient if ctx.needs_input_grad[1] else None, None, None, None


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
