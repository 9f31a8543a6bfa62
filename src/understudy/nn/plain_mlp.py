"""A plain ReLU network over one flat buffer, as one node of the autograd graph with its gradient written out.

    forward    h_k = relu(h_{k-1}·W_k + b_k),   y = h_L·W + b
    backward   ∂W_k = h_{k-1}ᵀ·δ_k,   ∂b_k = Σ_batch δ_k,   δ_{k-1} = (δ_k·W_kᵀ) where h_{k-1} > 0

Autograd gives the same numbers; layer by layer it spends a quarter of a small update on bookkeeping. One network is
2-dimensional throughout ([B, units]); a stack of K networks has a leading axis [K, …] and uses batched products, except
where a layer has one output or few: there they are three to ten times slower than the same written otherwise.
"""

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ALIGNMENT = 16
"""Every matrix starts at a multiple of this many numbers (a cache line): products are faster, and round alike."""

NARROW = 16
"""Of a stack's layer with so few outputs, ∂Wᵀ = δᵀ·h is faster than ∂W = hᵀ·δ."""


class Layer(NamedTuple):
    weight: Tensor
    """[inputs, outputs], or [K, inputs, outputs]."""
    bias: Tensor
    """[outputs], or [K, 1, outputs]."""


@final
class Layout:
    """Where each layer of a network lies in its flat buffer."""

    def __init__(self, sizes: Sequence[int], members: int | None) -> None:
        self.shapes: list[tuple[int, ...]] = []
        for inputs, outputs in itertools.pairwise(sizes):
            if members is None:
                self.shapes += [(inputs, outputs), (outputs,)]
            else:
                self.shapes += [(members, inputs, outputs), (members, 1, outputs)]
        self.padded = [-(-prod(shape) // ALIGNMENT) * ALIGNMENT for shape in self.shapes]
        self.size = sum(self.padded)
        self.padding = self.size - sum(map(prod, self.shapes))
        """Zeros between layers, which nobody learns."""
        ends = itertools.accumulate(self.padded)
        full = zip(self.shapes, self.padded, ends, strict=True)
        self._gaps = [slice(end - room + prod(shape), end) for shape, room, end in full if prod(shape) < room]

    def layers(self, flat: Tensor) -> list[Layer]:
        """Views of a flat buffer."""
        pieces = torch.split(flat, self.padded)
        views = [piece[: prod(shape)].view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
        return [Layer(weight, bias) for weight, bias in zip(views[::2], views[1::2], strict=True)]

    def blank(self, like: Tensor) -> tuple[Tensor, list[Layer]]:
        """A new flat buffer whose layers are still to be written; only the padding is zero already."""
        flat = like.new_empty(self.size)
        for gap in self._gaps:
            flat[gap].zero_()
        return flat, self.layers(flat)


def plain_mlp(values: Tensor, flat: Tensor, layout: Layout, layers: Sequence[Layer]) -> Tensor:
    """[B, inputs] → [B, outputs], or [B, inputs] or [K, B, inputs] → [K, B, outputs]; `layers` are the layout's views
    of `flat`."""
    if torch.is_grad_enabled():
        result: Tensor = _PlainMLP.apply(values, flat, layout, layers)  # type: ignore[no-untyped-call]
        return result
    return _outputs(values, layers)[-1]


class _PlainMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, flat: Tensor, layout: Layout, layers: Sequence[Layer]) -> Tensor:
        *hidden, output = _outputs(values, layers)
        ctx.save_for_backward(values, flat)  # torch refuses a backward pass after either was written to
        ctx.hidden, ctx.layout, ctx.layers = hidden, layout, layers
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        values, _ = ctx.saved_tensors
        learning = ctx.needs_input_grad[1]
        gradient, into = ctx.layout.blank(delta) if learning else (None, ())
        inputs = [_stacked(values, ctx.layers), *ctx.hidden]
        stacked = delta.dim() == 3
        product = torch.bmm if stacked else torch.mm
        for number in range(len(ctx.hidden), -1, -1):
            weight = ctx.layers[number].weight
            outputs = weight.shape[-1]
            if learning:
                if stacked and outputs <= NARROW:
                    into[number].weight.copy_(torch.bmm(delta.mT, inputs[number]).mT)
                else:
                    product(inputs[number].mT, delta, out=into[number].weight)
                torch.sum(delta, dim=-2, keepdim=stacked, out=into[number].bias)
            if number > 0:
                below = delta * weight.mT if outputs == 1 else product(delta, weight.mT)
                delta = torch.ops.aten.threshold_backward.grad_input(below, inputs[number], 0, grad_input=below)
        input_gradient = None
        if ctx.needs_input_grad[0]:
            input_gradient = product(delta, ctx.layers[0].weight.mT)
            input_gradient = input_gradient.sum(0) if stacked and values.dim() == 2 else input_gradient
        return input_gradient, gradient, None, None


def _outputs(values: Tensor, layers: Sequence[Layer]) -> list[Tensor]:
    """Every layer's output; all but the last after their ReLU."""
    units = _stacked(values, layers)
    outputs: list[Tensor] = []
    for layer in layers:
        units = outputs[-1].relu_() if outputs else units
        outputs.append(_affine(units, layer))
    return outputs


def _affine(units: Tensor, layer: Layer) -> Tensor:
    """units·W + b, of one network or of a stack."""
    if units.dim() == 2:
        return torch.addmm(layer.bias, units, layer.weight)
    if layer.weight.shape[-1] > 1:
        return torch.baddbmm(layer.bias, units, layer.weight)
    members = zip(layer.bias, units, layer.weight, strict=True)
    return torch.stack([torch.addmm(bias, rows, column) for bias, rows, column in members])


def _stacked(values: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Rows [B, inputs] for every member of a stack, which may have rows of its own [K, B, inputs] instead."""
    first = layers[0].weight
    return values if first.dim() == values.dim() else values.expand(len(first), *values.shape)
