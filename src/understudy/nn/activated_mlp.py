"""A multilayer perceptron with tanh, ELU or ReLU, as one node of the autograd graph over one flat parameter.

    forward    h_k = f(h_{k-1}·W_k + b_k),   y = h_L·W + b
    backward   ∂W_k = h_{k-1}ᵀ·δ_k,   ∂b_k = Σ_batch δ_k,   δ_{k-1} = (δ_k·W_kᵀ) ∘ f′(h_{k-1})

Layers start orthogonal with zero biases: gain √2 in hidden ones, also before tanh, as PPO's implementations have it; in
the last one a gain of the caller's: 0.01 lets a policy start in the middle of its range, 1 suits a value.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from understudy.core.settings import Settings
from understudy.nn.activations import Activation, activate, activate_, tanh_of_double_, through_activation_
from understudy.nn.plain_mlp import NARROW, Layer, Layout

ACTOR_GAIN, VALUE_GAIN = 0.01, 1.0
"""Of the last layer."""

MANY = 64
"""Rows from which a layer of few outputs is computed the other way round."""


class TrunkSettings(Settings):
    """The shape of a trunk."""

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
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

    @property
    def plain(self) -> bool:
        """Nothing but products and activations: `trace` and `gradient` may be used."""
        return not self.norms

    def outputs(self, rows: Tensor) -> Tensor:
        """`forward` of rows [B, inputs], with gradients switched off by the caller, and nothing around it."""
        if self.plain:
            return _outputs(rows, self.layers(), self.activation)[-1]
        return self._layer_by_layer(rows, self.layers())

    def trace(self, rows: Tensor) -> list[Tensor]:
        """Every layer's output for rows [B, inputs], the network's last; with gradients switched off by the caller."""
        return _outputs(rows, self.layers(), self.activation)

    def gradient(self, rows: Tensor, trace: list[Tensor], delta: Tensor) -> Tensor:
        """∂/∂flat, from ∂/∂outputs [B, outputs] and what `trace` gave; it holds until this is called again."""
        if not self._scratch or self._scratch[0][0].device != delta.device:
            flat = torch.zeros_like(self.flat, requires_grad=False)
            self._scratch = [(flat, self.layout.layers(flat))]
        gradient, into = self._scratch[0]
        _write_gradient([rows, *trace[:-1]], delta, self.layers(), into, self.activation)
        return gradient

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
        delta = _write_gradient([rows, *ctx.hidden], delta, ctx.layers, into, ctx.activation)
        below = _through_layer(delta, ctx.layers[0].weight) if ctx.needs_input_grad[0] else None
        return below, gradient, None, None, None


def _write_gradient(
    inputs: Sequence[Tensor], delta: Tensor, layers: Sequence[Layer], into: Sequence[Layer], activation: Activation
) -> Tensor:
    """Gradients of every layer into the views of a flat buffer; gives δ of the first layer."""
    for number in range(len(layers) - 1, -1, -1):
        _weight_gradient(inputs[number], delta, into[number].weight)
        torch.sum(delta, dim=0, out=into[number].bias)
        if number > 0:
            delta = through_activation_(_through_layer(delta, layers[number].weight), inputs[number], activation)
    return delta


def _through_layer(delta: Tensor, weight: Tensor) -> Tensor:
    """δ·Wᵀ [B, inputs]; of one output it is no product of matrices."""
    return delta * weight.mT if weight.shape[1] == 1 else delta @ weight.mT


def _weight_gradient(inputs: Tensor, delta: Tensor, out: Tensor) -> None:
    """hᵀ·δ [inputs, outputs]; of few outputs (δᵀ·h)ᵀ, four times as fast."""
    if 1 < delta.shape[1] <= NARROW:
        out.copy_(torch.mm(delta.mT, inputs).mT)
    else:
        torch.mm(inputs.mT, delta, out=out)


def _outputs(rows: Tensor, layers: Sequence[Layer], activation: Activation) -> list[Tensor]:
    """Every layer's output; all but the last activated."""
    outputs: list[Tensor] = []
    last = len(layers) - 1
    for number, layer in enumerate(layers):
        units = outputs[-1] if outputs else rows
        if number < last:
            outputs.append(_activated_layer(units, layer, activation))
        else:
            outputs.append(_last_layer(units, layer))
    return outputs


def _activated_layer(units: Tensor, layer: Layer, activation: Activation) -> Tensor:
    """f(h·W + b); tanh x as 2·sigmoid(2x) − 1, whose inner 2 costs nothing inside the product."""
    if activation == "tanh":
        return tanh_of_double_(torch.addmm(layer.bias, units, layer.weight, beta=2, alpha=2))
    return activate_(torch.addmm(layer.bias, units, layer.weight), activation)


def _last_layer(units: Tensor, layer: Layer) -> Tensor:
    """h·W + b; of few outputs and many rows (Wᵀ·hᵀ)ᵀ + b, three times as fast."""
    outputs = layer.weight.shape[1]
    if 1 < outputs <= NARROW and len(units) >= MANY:
        return torch.add(torch.mm(layer.weight.mT, units.mT).mT, layer.bias, out=units.new_empty(len(units), outputs))
    return torch.addmm(layer.bias, units, layer.weight)
