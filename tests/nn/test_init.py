"""How layers start."""

import math

import pytest
import torch
from torch import nn

from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.init import Init, init_layer
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.plain_mlp import Layer


def started(members: int | None, inputs: int, outputs: int, scheme: Init, seed: int = 0) -> Layer:
    """A layer that held something else before."""
    stack = () if members is None else (members,)
    bias = (outputs,) if members is None else (members, 1, outputs)
    layer = Layer(torch.full((*stack, inputs, outputs), 7.0), torch.full(bias, 7.0))
    init_layer(layer.weight, layer.bias, scheme, stream(seed, "init"))
    return layer


@pytest.mark.parametrize("members", [None, 1, 2])
@pytest.mark.parametrize(("inputs", "outputs"), [(5, 12), (12, 5), (8, 8)])
def test_orthogonal_layers_are_isometries_times_root_two(members: int | None, inputs: int, outputs: int) -> None:
    layer = started(members, inputs, outputs, "orthogonal")
    for member in layer.weight.view(-1, inputs, outputs):
        small = member @ member.T if inputs <= outputs else member.T @ member
        torch.testing.assert_close(small, 2 * torch.eye(min(inputs, outputs)), atol=1e-5, rtol=0)
    assert not layer.bias.any()


@pytest.mark.parametrize("members", [None, 2])
def test_default_layers_are_uniform_within_torch_bounds(members: int | None) -> None:
    for values in started(members, 16, 1000, "default"):
        assert float(values.abs().max()) <= 0.25
        assert float(values.abs().max()) > 0.249
        assert float(values.std()) == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("scheme", ["orthogonal", "default"])
def test_layers_come_from_their_stream_alone(scheme: Init) -> None:
    before = torch.get_rng_state()
    first, again, other = (started(2, 4, 4, scheme, seed).weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("scheme", ["orthogonal", "default"])
def test_one_network_starts_as_a_stack_of_one(scheme: Init) -> None:
    single, stack = started(None, 5, 12, scheme), started(1, 5, 12, scheme)
    assert torch.equal(single.weight, stack.weight[0])
    assert torch.equal(single.bias, stack.bias[0, 0])


@pytest.mark.parametrize("members", [None, 2])
def test_small_outputs_start_near_zero_with_hidden_biases_of_a_tenth(members: int | None) -> None:
    settings = NetworkSettings(hidden=(64, 64), init="small_output")
    network = MLP(16, 50, settings, stream(0, "init"), members=members)
    *hidden, output = network.layers()
    for layer, bound in zip(hidden, (1 / 4, 1 / 8), strict=True):
        assert 0.98 * bound < float(layer.weight.abs().max()) <= bound
        assert bool((layer.bias == torch.tensor(0.1)).all())
    for values in output:
        assert 0.9 * 3e-3 < float(values.abs().max()) <= 3e-3


@pytest.mark.parametrize("members", [None, 2])
def test_xavier_outputs_are_torchs_with_a_gain(members: int | None) -> None:
    """U(±gain·√(6/(inputs + outputs))) and no bias, behind hidden layers that are torch's own."""
    settings = NetworkSettings(hidden=(64, 64), init="xavier_output", output_gain=0.01)
    *hidden, output = MLP(16, 50, settings, stream(0, "init"), members=members).layers()
    plain = MLP(16, 50, NetworkSettings(hidden=(64, 64), init="default"), stream(0, "init"), members=members)
    for layer, other in zip(hidden, plain.layers(), strict=False):
        assert torch.equal(layer.weight, other.weight)
        assert torch.equal(layer.bias, other.bias)
    known = nn.init.xavier_uniform_(torch.empty(50, 64), gain=0.01)
    bound = 0.01 * math.sqrt(6 / (64 + 50))
    assert float(known.abs().max()) <= bound
    assert 0.98 * bound < float(output.weight.abs().max()) <= bound
    assert not output.bias.any()


def test_a_policy_with_small_outputs_starts_in_the_middle_of_its_range() -> None:
    spec = Spec({"state": Group((3,), "float32")}, Box((-1.0,) * 40, (1.0,) * 40))
    settings = ActorSettings.parse({"init": "small_output", "distribution": "deterministic"})
    *_, output = Actor(spec, settings, stream(0, "init")).trunk.layers()
    for values in output:
        assert 0.9 * 1e-3 < float(values.abs().max()) <= 1e-3
