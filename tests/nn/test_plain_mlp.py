"""The written-out gradient of a plain network against autograd and finite differences."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from understudy.nn.plain_mlp import plain_mlp


def parameters(members: int, sizes: list[int], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    rng = torch.Generator().manual_seed(3)
    made = []
    for inputs, outputs in itertools.pairwise(sizes):
        made += [torch.randn(members, inputs, outputs, generator=rng, dtype=dtype)]
        made += [torch.randn(members, 1, outputs, generator=rng, dtype=dtype)]
    return [tensor.requires_grad_() for tensor in made]


def layer_by_layer(values: Tensor, tensors: list[Tensor]) -> Tensor:
    units = values.expand(len(tensors[0]), *values.shape)
    for number in range(0, len(tensors), 2):
        units = (F.relu(units) if number else units) @ tensors[number] + tensors[number + 1]
    return units


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("sizes", [[4, 1], [4, 8, 2], [4, 8, 6, 3]])
def test_gradients_are_autograds(members: int, sizes: list[int]) -> None:
    tensors = parameters(members, sizes)
    values = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours, theirs = plain_mlp(values, *tensors), layer_by_layer(values, tensors)
    torch.testing.assert_close(ours, theirs)
    weights = torch.linspace(-1, 1, ours.numel(), dtype=torch.float64).view_as(ours)
    gradients = torch.autograd.grad((ours * weights).sum(), [values, *tensors])
    expected = torch.autograd.grad((theirs * weights).sum(), [values, *tensors])
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)


def test_gradients_are_finite_differences() -> None:
    tensors = parameters(2, [3, 5, 1])
    values = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(plain_mlp, (values, *tensors))


def test_two_passes_in_flight_do_not_disturb_each_other() -> None:
    tensors = parameters(2, [3, 5, 1])
    first, second = torch.ones(2, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    both = plain_mlp(first, *tensors).sum() + plain_mlp(second, *tensors).sum()
    expected = layer_by_layer(first, tensors).sum() + layer_by_layer(second, tensors).sum()
    for ours, theirs in zip(torch.autograd.grad(both, tensors), torch.autograd.grad(expected, tensors), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_gradient_the_numbers_are_the_same_to_the_bit() -> None:
    tensors = parameters(2, [3, 5, 1], torch.float32)
    values = torch.randn(7, 3, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        silent = plain_mlp(values, *tensors)
    assert torch.equal(silent, plain_mlp(values, *tensors))
