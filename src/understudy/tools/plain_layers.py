"""Networks layer by layer, in operations every runtime knows.

The library's own write over their inputs and have gradients written out, which is faster and cannot be traced to other
formats. These are made of the same numbers and compute the same function.
"""

import copy

import torch.nn.functional as F
from torch import Tensor, nn

from understudy.nn.activations import Activation, activate
from understudy.nn.deployed import Deployed
from understudy.nn.mlp import MLP, StackedLayerNorm


class PlainNorm(nn.Module):
    """Layer normalisation [B, width] or [K, B, width], of a width that is written down."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        assert isinstance(norm, StackedLayerNorm)
        self.weight, self.bias = (nn.Parameter(part.detach().clone()) for part in (norm.weight, norm.bias))
        self.width = norm.weight.shape[-1]

    def forward(self, units: Tensor) -> Tensor:
        return F.layer_norm(units, (self.width,)) * self.weight + self.bias


class PlainLayers(nn.Module):
    """[B, inputs] → [B, outputs], or [K, B, outputs] of a stack: what an MLP gives that drops nothing."""

    def __init__(self, network: MLP) -> None:
        super().__init__()
        self.activation: Activation = network.activation
        layers = network.layout.layers(network.flat.detach())
        self.weights = nn.ParameterList(nn.Parameter(layer.weight.clone()) for layer in layers)
        self.biases = nn.ParameterList(nn.Parameter(layer.bias.clone()) for layer in layers)
        self.norms = nn.ModuleList(PlainNorm(norm) for norm in network.norms)

    def forward(self, units: Tensor) -> Tensor:
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            units = units @ weight + bias
            if number < last:
                units = activate(self.norms[number](units) if self.norms else units, self.activation)
        return units


def plain_copy(policy: Deployed) -> Deployed:
    """A policy at rest on the CPU that acts like this one, with plain layers inside and nothing shared."""
    twins: dict[int, object] = {
        id(module): PlainLayers(module) for module in policy.modules() if isinstance(module, MLP)
    }
    return copy.deepcopy(policy, twins).cpu().train(False).requires_grad_(False)
