"""Stacked multilayer perceptrons: K networks of one shape, multiplied in one batched product per layer."""

import itertools

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from understudy.core.settings import Settings
from understudy.nn.dropout import Dropout
from understudy.nn.init import Init, init_layer
from understudy.nn.plain_mlp import plain_mlp


class NetworkSettings(Settings):
    """The shape of a trunk."""

    hidden: tuple[int, ...] = Field((256, 256), min_length=1)
    """Units of each hidden layer."""
    init: Init = "orthogonal"
    """`orthogonal` (gain √2, as official IQL) or `default` (torch's Linear)."""
    layer_norm: bool = False
    """Layer normalisation after each hidden layer."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of hidden units dropped while training."""


class StackedLinear(nn.Module):
    """K affine maps: [K, B, inputs] → [K, B, outputs]."""

    def __init__(self, members: int, inputs: int, outputs: int, init: Init, rng: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs))
        init_layer(self.weight, self.bias, init, rng)

    def forward(self, values: Tensor) -> Tensor:
        if self.weight.shape[0] == 1:
            return torch.addmm(self.bias[0], values[0], self.weight[0]).unsqueeze(0)
        return torch.baddbmm(self.bias, values, self.weight)


class StackedLayerNorm(nn.Module):
    """Layer normalisation [K, B, width] with a gain and a bias of its own for each member."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, width))
        self.bias = nn.Parameter(torch.zeros(members, 1, width))

    def forward(self, values: Tensor) -> Tensor:
        return torch.addcmul(self.bias, self.weight, F.layer_norm(values, values.shape[-1:]))


class MLP(nn.Module):
    """[B, inputs] → [K, B, outputs]: ReLU between layers, nothing after the last."""

    def __init__(
        self, inputs: int, outputs: int, settings: NetworkSettings, rng: torch.Generator, *, members: int = 1
    ) -> None:
        super().__init__()
        self.members = members
        sizes = [inputs, *settings.hidden, outputs]
        self.layers = nn.ModuleList(
            StackedLinear(members, fan_in, fan_out, settings.init, rng) for fan_in, fan_out in itertools.pairwise(sizes)
        )
        norms = [StackedLayerNorm(members, width) for width in settings.hidden] if settings.layer_norm else []
        self.norms = nn.ModuleList(norms)
        drops = [Dropout(settings.dropout, rng) for _ in settings.hidden] if settings.dropout > 0 else []
        self.drops = nn.ModuleList(drops)

    def forward(self, values: Tensor) -> Tensor:
        if not self.norms and not self.drops:
            return plain_mlp(values, *self.parameters())
        units = values.expand(self.members, *values.shape)
        *hidden, output = self.layers
        for number, layer in enumerate(hidden):
            units = layer(units)
            if self.norms:
                units = self.norms[number](units)
            units = F.relu(units)
            if self.drops:
                units = self.drops[number](units)
        outputs: Tensor = output(units)
        return outputs
