"""How layers start."""

import math

import pytest
import torch

from understudy.core.rng import stream
from understudy.nn.mlp import StackedLinear


@pytest.mark.parametrize(("inputs", "outputs"), [(5, 12), (12, 5), (8, 8)])
def test_orthogonal_layers_are_isometries_times_root_two(inputs: int, outputs: int) -> None:
    layer = StackedLinear(2, inputs, outputs, "orthogonal", stream(0, "init"))
    for member in layer.weight.detach():
        small = member @ member.T if inputs <= outputs else member.T @ member
        torch.testing.assert_close(small, 2 * torch.eye(min(inputs, outputs)), atol=1e-5, rtol=0)
    assert not layer.bias.any()


def test_default_layers_are_uniform_within_torch_bounds() -> None:
    layer = StackedLinear(2, 16, 500, "default", stream(0, "init"))
    for parameter in (layer.weight, layer.bias):
        values = parameter.detach()
        assert float(values.abs().max()) <= 0.25
        assert float(values.abs().max()) > 0.249
        assert float(values.std()) == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


def test_layers_come_from_their_stream_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (StackedLinear(2, 4, 4, "orthogonal", stream(seed, "init")).weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(torch.get_rng_state(), before)
