"""Stacked multilayer perceptrons: K networks of one shape, multiplied in one batched product per layer."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from understudy.core.settings import Settings
from understudy.nn.dropout import Dropout
from understudy.nn.init import Init, init_layer
from understudy.nn.plain_mlp import Layer, Layout, plain_mlp


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


class StackedLayerNorm(nn.Module):
    """Layer normalisation [B, width], or [K, B, width] with a gain and a bias of its own for each member."""

    def __init__(self, members: int | None, width: int) -> None:
        super().__init__()
        shape = (width,) if members is None else (members, 1, width)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, values: Tensor) -> Tensor:
        return torch.addcmul(self.bias, self.weight, F.layer_norm(values, values.shape[-1:]))


class MLP(nn.Module):
    """[B, inputs] → [B, outputs], or [K, B, outputs] with K members: ReLU between layers, nothing after the last.

    All weights and biases lie in one parameter `flat`, so that an optimiser or a target takes one step, not twelve.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        settings: NetworkSettings,
        rng: torch.Generator,
        *,
        members: int | None = None,
    ) -> None:
        super().__init__()
        self.members = members
        self.layout = Layout([inputs, *settings.hidden, outputs], members)
        self.flat = nn.Parameter(torch.zeros(self.layout.size))
        self._views: list[Layer] = []
        for layer in self.layers():
            init_layer(layer.weight, layer.bias, settings.init, rng)
        norms = [StackedLayerNorm(members, width) for width in settings.hidden] if settings.layer_norm else []
        self.norms = nn.ModuleList(norms)
        drops = [Dropout(settings.dropout, rng) for _ in settings.hidden] if settings.dropout > 0 else []
        self.drops = nn.ModuleList(drops)

    def layers(self) -> list[Layer]:
        """Weights and biases as views of `flat`, outside the graph."""
        if not self._views or self._views[0].weight.data_ptr() != self.flat.data_ptr():  # moved, or a deep copy
            self._views = self.layout.layers(self.flat.detach())
        return self._views

    def forward(self, values: Tensor) -> Tensor:
        if self.norms or self.drops or torch.compiler.is_compiling():
            return self._layer_by_layer(values)
        return plain_mlp(values, self.flat, self.layout, self.layers())

    def _layer_by_layer(self, values: Tensor) -> Tensor:
        *hidden, output = self.layout.layers(self.flat)
        units = values if self.members is None else values.expand(self.members, *values.shape)
        for number, layer in enumerate(hidden):
            units = units @ layer.weight + layer.bias
            if self.norms:
                units = self.norms[number](units)
            units = F.relu(units)
            if self.drops:
                units = self.drops[number](units)
        return units @ output.weight + output.bias
