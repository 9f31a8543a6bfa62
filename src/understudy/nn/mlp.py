"""Stacked multilayer perceptrons: K networks of one shape, multiplied in one batched product per layer."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from understudy.core.settings import Settings, Widths
from understudy.nn.dropout import Dropout
from understudy.nn.init import OUTPUT_BOUND, Init, init_layer, init_output
from understudy.nn.plain_mlp import Layer, Layout, plain_mlp


class NetworkSettings(Settings):
    """The shape of a trunk."""

    hidden: Widths = Field((256, 256), min_length=1)
    """Units of each hidden layer."""
    init: Init = "orthogonal"
    """`orthogonal` (gain √2, as official IQL), `default` (torch's Linear) or `small_output` (biases of 0.1 and a last
    layer near 0, as ReBRAC)."""
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

    def forward(self, values: Tensor, member: int | None = None) -> Tensor:
        """All members, or [B, width] of one of them."""
        weight, bias = (part if member is None else part[member] for part in (self.weight, self.bias))
        return torch.addcmul(bias, weight, F.layer_norm(values, values.shape[-1:]))


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
        output_bound: float = OUTPUT_BOUND,
    ) -> None:
        super().__init__()
        self.members = members
        self.layout = Layout([inputs, *settings.hidden, outputs], members)
        self.flat = nn.Parameter(torch.zeros(self.layout.size))
        self._views: list[Layer] = []
        *hidden, output = self.layers()
        for layer in hidden:
            init_layer(layer.weight, layer.bias, settings.init, rng)
        init_output(output.weight, output.bias, settings.init, rng, output_bound)
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
            return self._layer_by_layer(values, self.layout.layers(self.flat))
        return plain_mlp(values, self.flat, self.layout, self.layers())

    def frozen(self, values: Tensor, member: int | None = None) -> Tensor:
        """`forward` as a function of its inputs alone: no gradient to the weights. Of one member [B, outputs] if named.

        A policy that climbs its critics needs no more, and the gradient of the weights is half of a backward pass.
        """
        flat, compiling = self.flat.detach(), torch.compiler.is_compiling()
        layers = self.layout.layers(flat) if compiling else self.layers()
        if member is not None:
            layers = [Layer(layer.weight[member], layer.bias[member, 0]) for layer in layers]
        if self.norms or self.drops or compiling:
            return self._layer_by_layer(values, layers, member)
        return plain_mlp(values, flat, self.layout, layers)

    def _layer_by_layer(self, values: Tensor, layers: list[Layer], member: int | None = None) -> Tensor:
        *hidden, output = layers
        stack = self.members if member is None else None
        units = values if stack is None else values.expand(stack, *values.shape)
        for number, layer in enumerate(hidden):
            units = units @ layer.weight + layer.bias
            if self.norms:
                units = self.norms[number](units, member)
            units = F.relu(units)
            if self.drops:
                units = self.drops[number](units)
        if stack is not None and output.weight.shape[-1] == 1:  # slow as a batched product; compiled code fuses this
            return (units * output.weight.mT).sum(-1, keepdim=True) + output.bias
        return units @ output.weight + output.bias
