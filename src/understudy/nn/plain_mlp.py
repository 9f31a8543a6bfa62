"""A plain ReLU network as one node of the autograd graph, with its gradient written out.

Autograd would give the same numbers; layer by layer it spends a third of a small update on bookkeeping.

    forward    h_k = relu(h_{k-1}·W_k + b_k),   y = h_L·W + b
    backward   ∂W_k = h_{k-1}ᵀ·δ_k,   ∂b_k = Σ_batch δ_k,   δ_{k-1} = (δ_k·W_kᵀ) where h_{k-1} > 0

Everything is stacked over K members: W_k [K, inputs, outputs], b_k [K, 1, outputs], h_k [K, B, outputs].
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def plain_mlp(values: Tensor, *parameters: Tensor) -> Tensor:
    """[B, inputs] → [K, B, outputs]; parameters are W_1, b_1, W_2, b_2, …"""
    if torch.is_grad_enabled():
        result: Tensor = _PlainMLP.apply(values, *parameters)  # type: ignore[no-untyped-call]
        return result
    return _layers(values, parameters)[-1]


class _PlainMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, *parameters: Tensor) -> Tensor:
        *hidden, output = _layers(values, parameters)
        ctx.save_for_backward(values, *hidden, *parameters[::2])
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        count = len(saved) // 2
        values, inputs, weights = saved[0], [_stacked(saved[0], saved[-1]), *saved[1:count]], saved[count:]
        gradients: list[Tensor] = []
        for number in range(count - 1, -1, -1):
            gradients += [delta.sum(1, keepdim=True), _product(inputs[number].mT, delta)]
            if number > 0:
                below = _product(delta, weights[number].mT)
                delta = torch.ops.aten.threshold_backward.grad_input(below, inputs[number], 0, grad_input=below)
        input_gradient = None
        if ctx.needs_input_grad[0]:
            input_gradient = _product(delta, weights[0].mT).sum(0).view_as(values)
        return input_gradient, *reversed(gradients)


def _layers(values: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Every layer's output; all but the last after their ReLU."""
    units = _stacked(values, parameters[0])
    outputs: list[Tensor] = []
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        if outputs:
            units = outputs[-1].relu_()
        outputs.append(_affine(units, weight, bias))
    return outputs


def _stacked(values: Tensor, weight: Tensor) -> Tensor:
    return values.expand(len(weight), *values.shape)


def _affine(units: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if len(weight) == 1:  # one matrix product beats a batch of one
        return torch.addmm(bias[0], units[0], weight[0]).unsqueeze(0)
    return torch.baddbmm(bias, units, weight)


def _product(left: Tensor, right: Tensor) -> Tensor:
    return torch.mm(left[0], right[0]).unsqueeze(0) if len(left) == 1 else torch.bmm(left, right)
