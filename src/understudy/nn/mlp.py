"""Multilayer perceptrons, alone or K of one shape multiplied in one batched product per layer.

Three ways to compute one thing, chosen by shape: a stack, or ReLU, as one node whose gradient is written out
(nn.plain_mlp); one network with tanh or ELU likewise (nn.activated_layers); everything else, and whatever a compiler
shall fuse, layer by layer.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from understudy.core.settings import Settings, Widths
from understudy.nn.activated_layers import activated_layers, layer_outputs
from understudy.nn.activations import WRITTEN_OUT, Activation, activate
from understudy.nn.dropout import Dropout
from understudy.nn.init import HIDDEN_GAIN, OUTPUT_BOUND, Init, init_layer, init_output
from understudy.nn.plain_mlp import Layer, Layout, plain_mlp


class NetworkSettings(Settings):
    """The shape of a trunk."""

    hidden: Widths = (256, 256)
    """Units of each hidden layer; none is a linear map."""
    activation: Activation = "relu"
    """Between layers: `relu`, `tanh`, `elu`, `gelu`, `silu`, `leaky_relu` or `selu`."""
    layer_norm: bool = False
    """Layer normalisation before each activation."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of hidden units dropped while training."""
    init: Init = "orthogonal"
    """`orthogonal` (gain √2, as official IQL), `default` (torch's Linear), `small_output` (biases of 0.1 and a last
    layer near 0, as ReBRAC) or `xavier_output` (torch's with a last layer after Xavier, as CORL's CQL)."""
    output_gain: float = Field(HIDDEN_GAIN, gt=0)
    """Of the last layer where layers start orthogonal or it starts after Xavier: √2 as official IQL; PPO: 0.01 for
    policies, 1 for values."""


def trunk_words(settings: NetworkSettings) -> str:
    """256-256 relu."""
    return f"{'-'.join(map(str, settings.hidden)) or 'linear'} {settings.activation}"


class StackedLayerNorm(nn.Module):
    """Layer normalisation [..., width], or [K, B, width] with a gain and a bias of its own for each member."""

    def __init__(self, members: int | None, width: int) -> None:
        super().__init__()
        shape = (width,) if members is None else (members, 1, width)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, values: Tensor, member: int | Tensor | None = None) -> Tensor:
        """All members, [B, width] of one of them, or [M, B, width] of some [M]."""
        weight, bias = (part if member is None else part[member] for part in (self.weight, self.bias))
        return torch.addcmul(bias, weight, F.layer_norm(values, values.shape[-1:]))


class GradientRoom(NamedTuple):
    """A flat buffer for one gradient, and its views by layer."""

    flat: Tensor
    layers: list[Layer]


class MLP(nn.Module):
    """[..., inputs] → [..., outputs], or [B, inputs] → [K, B, outputs] with K members, each of which may have rows of
    its own [K, B, inputs]; nothing after the last layer.

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
        self.activation = settings.activation
        self.layout = Layout([inputs, *settings.hidden, outputs], members)
        self.flat = nn.Parameter(torch.zeros(self.layout.size))
        self._views: list[Layer] = []
        self._scratch: list[GradientRoom] = []
        """Made when it is first asked for."""
        *hidden, output = self.layers()
        for layer in hidden:
            init_layer(layer.weight, layer.bias, settings.init, rng)
        init_output(output.weight, output.bias, settings.init, rng, output_bound, gain=settings.output_gain)
        norms = [StackedLayerNorm(members, width) for width in settings.hidden] if settings.layer_norm else []
        self.norms = nn.ModuleList(norms)
        drops = [Dropout(settings.dropout, rng) for _ in settings.hidden] if settings.dropout > 0 else []
        self.drops = nn.ModuleList(drops)

    def layers(self) -> list[Layer]:
        """Weights and biases as views of `flat`, outside the graph."""
        if not self._views or self._views[0].weight.data_ptr() != self.flat.data_ptr():  # moved, or a deep copy
            self._views = self.layout.layers(self.flat.detach())
        return self._views

    @property
    def plain(self) -> bool:
        """One network of nothing but products and an activation whose gradient is written out."""
        return self.members is None and not self.norms and not self.drops and self.activation in WRITTEN_OUT

    def forward(self, values: Tensor) -> Tensor:
        if self._by_layer():
            return self._layer_by_layer(values, self.layout.layers(self.flat))
        return self._written_out(values, self.flat, self.layers())

    def by_autograd(self, values: Tensor) -> Tensor:
        """`forward` of operations that autograd knows, so that a gradient can be differentiated again."""
        return self._layer_by_layer(values, self.layout.layers(self.flat))

    def frozen(self, values: Tensor, member: int | Tensor | None = None) -> Tensor:
        """`forward` as a function of its inputs alone: no gradient to the weights. Of one member [B, outputs] if named,
        or of some [M] of them, [M, B, outputs].

        A policy that climbs its critics needs no more, and the gradient of the weights is half of a backward pass.
        """
        flat, by_layer = self.flat.detach(), self._by_layer()
        layers = self.layout.layers(flat) if by_layer else self.layers()
        if isinstance(member, Tensor):
            layers = [Layer(layer.weight[member], layer.bias[member]) for layer in layers]
        elif member is not None:
            layers = [Layer(layer.weight[member], layer.bias[member, 0]) for layer in layers]
        return self._layer_by_layer(values, layers, member) if by_layer else self._written_out(values, flat, layers)

    def outputs(self, rows: Tensor) -> Tensor:
        """`forward` of rows [B, inputs], with gradients switched off by the caller, and nothing around it."""
        if self.plain:
            return layer_outputs(rows, self.layers(), self.activation)[-1]
        return self._layer_by_layer(rows, self.layers())

    def gradient_room(self) -> GradientRoom:
        """The same every time: for `write_gradient` (nn.activated_layers)."""
        flat, into = self._scratch[0] if self._scratch else GradientRoom(self.flat, self.layers())
        alike = (flat.device, flat.dtype) == (self.flat.device, self.flat.dtype)
        if not (self._scratch and alike and into[0].weight.data_ptr() == flat.data_ptr()):  # first, moved, or copied
            flat = torch.zeros_like(self.flat, requires_grad=False)
            self._scratch = [GradientRoom(flat, self.layout.layers(flat))]
        return self._scratch[0]

    def _by_layer(self) -> bool:
        """Through autograd, or for a compiler."""
        kernel = "relu" if self.members is not None else self.activation
        fast = self.activation == kernel and kernel in WRITTEN_OUT
        return not fast or bool(self.norms) or bool(self.drops) or torch.compiler.is_compiling()

    def _written_out(self, values: Tensor, flat: Tensor, layers: list[Layer]) -> Tensor:
        if self.members is not None:
            return plain_mlp(values, flat, self.layout, layers)
        rows = values if values.dim() == 2 else values.reshape(-1, values.shape[-1])
        if self.activation == "relu" and len(layers) > 1:
            outputs = plain_mlp(rows, flat, self.layout, layers)
        else:
            outputs = activated_layers(rows, flat, self.layout, layers, self.activation)
        return outputs if values.dim() == 2 else outputs.view(*values.shape[:-1], outputs.shape[-1])

    def _layer_by_layer(self, values: Tensor, layers: list[Layer], member: int | Tensor | None = None) -> Tensor:
        *hidden, output = layers
        stack = None if self.members is None or isinstance(member, int) else len(output.weight)
        units = values if stack is None or values.dim() == 3 else values.expand(stack, *values.shape)
        for number, layer in enumerate(hidden):
            units = units @ layer.weight + layer.bias
            if self.norms:
                units = self.norms[number](units, member)
            units = activate(units, self.activation)
            if self.drops:
                units = self.drops[number](units)
        if stack is not None and output.weight.shape[-1] == 1:  # slow as a batched product; compiled code fuses this
            return (units * output.weight.mT).sum(-1, keepdim=True) + output.bias
        return units @ output.weight + output.bias
