"""Perceptrons with every activation: torch's own layers and gradients, and how they start."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.mlp import MLP, GradientRoom, NetworkSettings
from understudy.nn.plain_mlp import Layer

LAYERS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "selu": nn.SELU,
}
GAIN = 0.01


def mlp(outputs: int = 2, **changes: Any) -> MLP:
    settings = NetworkSettings.parse({"hidden": [8, 5], "activation": "tanh", **changes})
    return MLP(3, outputs, settings, stream(0, "init"))


def torch_twin(network: MLP, activation: str) -> nn.Sequential:
    parts: list[nn.Module] = []
    for layer in network.layers():
        linear = nn.Linear(*layer.weight.shape)
        linear.weight.data, linear.bias.data = layer.weight.T.clone(), layer.bias.clone()
        parts += [linear, LAYERS[activation]()]
    return nn.Sequential(*parts[:-1])


@pytest.mark.parametrize("activation", LAYERS)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("leading", [(7,), (3, 4)])
def test_values_and_gradients_are_torchs(activation: str, outputs: int, leading: tuple[int, ...]) -> None:
    network = mlp(outputs, activation=activation)
    network.flat.data += 0.1
    twin = torch_twin(network, activation)
    values = torch.randn(*leading, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    mine, theirs = network(values), twin(values)
    torch.testing.assert_close(mine, theirs)
    flat, through = torch.autograd.grad(mine.square().sum(), [network.flat, values])
    expected, *parts = torch.autograd.grad(theirs.square().sum(), [values, *twin.parameters()])
    torch.testing.assert_close(through, expected)
    for layer, weight, bias in zip(network.layout.layers(flat), parts[::2], parts[1::2], strict=True):
        torch.testing.assert_close(layer.weight, weight.T)
        torch.testing.assert_close(layer.bias, bias)


def test_with_and_without_gradient_it_is_the_same_to_the_bit() -> None:
    network, values = mlp(), torch.randn(9, 3)
    with torch.no_grad():
        quiet = network(values)
    assert torch.equal(quiet, network(values))


def test_layers_start_orthogonal_with_their_gains() -> None:
    settings = NetworkSettings(hidden=(8,), output_gain=GAIN)
    first, last = MLP(3, 2, settings, stream(0, "init")).layers()
    torch.testing.assert_close(first.weight @ first.weight.T, 2 * torch.eye(3))
    torch.testing.assert_close(last.weight.T @ last.weight, GAIN**2 * torch.eye(2))
    assert float(first.bias.abs().max()) == float(last.bias.abs().max()) == 0


@pytest.mark.parametrize("changes", [{}, {"hidden": []}, {"layer_norm": True}])
def test_every_shape_learns_a_line(changes: dict[str, Any]) -> None:
    network = mlp(1, **changes)
    values = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    target = values.sum(-1, keepdim=True)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    losses: list[Tensor] = []
    for _ in range(150):
        losses.append((network(values) - target).square().mean())
        optimiser.zero_grad()
        losses[-1].backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert float(losses[-1].detach()) < 0.1 * float(losses[0].detach())
    assert math.isfinite(float(losses[-1].detach()))


def test_room_for_a_gradient_is_one_buffer_also_after_its_parts_were_copied_one_by_one() -> None:
    network = mlp()
    network.gradient_room()
    apart = copy.deepcopy(network)
    flat, into = apart.gradient_room()
    apart._scratch = [GradientRoom(flat, [Layer(layer.weight.clone(), layer.bias.clone()) for layer in into])]
    for whole in (network, copy.deepcopy(network), apart):
        flat, into = whole.gradient_room()
        into[0].weight.fill_(2.0)
        assert float(flat.sum()) == 2.0 * 3 * 8


def test_copies_and_checkpoints_are_independent() -> None:
    network, values = mlp(), torch.randn(4, 3)
    network(values)
    twin, other = copy.deepcopy(network), mlp(activation="tanh")
    with torch.no_grad():
        network.flat.add_(1.0)
    assert not torch.equal(twin(values), network(values))
    restore(other, capture(network), "checkpoint")
    assert torch.equal(other(values), network(values))
