"""The written-out gradient of a plain network against autograd and finite differences."""

import itertools
from math import prod

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from understudy.nn.plain_mlp import ALIGNMENT, Layout, plain_mlp

MEMBERS = [None, 1, 2, 3]
SIZES = [[4, 1], [4, 8, 1], [4, 8, 20], [4, 8, 2], [4, 8, 6, 3], [4, 16, 16]]


def network(members: int | None, sizes: list[int], dtype: torch.dtype = torch.float64) -> tuple[Layout, Tensor]:
    rng = torch.Generator().manual_seed(3)
    layout = Layout(sizes, members)
    flat = torch.zeros(layout.size, dtype=dtype)
    for layer in layout.layers(flat):
        layer.weight.normal_(generator=rng)
        layer.bias.normal_(generator=rng)
    return layout, flat.requires_grad_()


def inputs(rows: int = 5, columns: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def forward(values: Tensor, layout: Layout, flat: Tensor) -> Tensor:
    return plain_mlp(values, flat, layout, layout.layers(flat.detach()))


def layer_by_layer(values: Tensor, layout: Layout, flat: Tensor) -> Tensor:
    first, *others = layout.layers(flat)
    units = values @ first.weight + first.bias
    for layer in others:
        units = F.relu(units) @ layer.weight + layer.bias
    return units


def padding(layout: Layout) -> Tensor:
    """True where no weight and no bias lies."""
    free = torch.ones(layout.size, dtype=torch.bool)
    for layer in layout.layers(free):
        layer.weight.zero_()
        layer.bias.zero_()
    return free


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("sizes", SIZES)
def test_layers_lie_apart_aligned_and_whole(members: int | None, sizes: list[int]) -> None:
    layout, flat = network(members, sizes)
    tensors = [tensor for layer in layout.layers(flat.detach()) for tensor in layer]
    stack = () if members is None else (members,)
    row = () if members is None else (1,)
    for layer, (above, below) in zip(layout.layers(flat), itertools.pairwise(sizes), strict=True):
        assert layer.weight.shape == (*stack, above, below)
        assert layer.bias.shape == (*stack, *row, below)
    end = 0
    for tensor in tensors:
        assert tensor.is_contiguous()
        assert tensor.storage_offset() % ALIGNMENT == 0
        assert end <= tensor.storage_offset() < end + ALIGNMENT
        end = int(tensor.storage_offset()) + tensor.numel()
    assert end <= layout.size < end + ALIGNMENT
    assert int(padding(layout).sum()) == layout.size - sum(prod(tensor.shape) for tensor in tensors)


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("rows", [1, 5])
def test_gradients_are_autograds(members: int | None, sizes: list[int], rows: int) -> None:
    layout, flat = network(members, sizes)
    values = inputs(rows).requires_grad_()
    ours, theirs = forward(values, layout, flat), layer_by_layer(values, layout, flat)
    assert ours.shape == ((rows, sizes[-1]) if members is None else (members, rows, sizes[-1]))
    torch.testing.assert_close(ours, theirs)
    weights = torch.linspace(-1, 1, ours.numel(), dtype=torch.float64).view_as(ours)
    gradients = torch.autograd.grad((ours * weights).sum(), [values, flat])
    expected = torch.autograd.grad((theirs * weights).sum(), [values, flat])
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("sizes", [[3, 1], [3, 5, 1], [3, 5, 4, 2]])
def test_gradients_are_finite_differences(members: int | None, sizes: list[int]) -> None:
    layout, flat = network(members, sizes)
    values = inputs(4, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, theta: forward(x, layout, theta), (values, flat))


@pytest.mark.parametrize("members", MEMBERS)
def test_a_gradient_may_be_broadcast_or_transposed(members: int | None) -> None:
    """`sum` hands back a gradient without memory of its own; a transposed batch has rows that do not lie together."""
    layout, flat = network(members, [4, 8, 2])
    values = inputs(4, 5).T
    for reduce in (torch.sum, lambda out: (out.mT.contiguous() * torch.arange(5)).sum()):
        (ours,) = torch.autograd.grad(reduce(forward(values, layout, flat)), flat)
        (theirs,) = torch.autograd.grad(reduce(layer_by_layer(values, layout, flat)), flat)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("members", MEMBERS)
def test_inputs_have_gradients_where_the_network_is_frozen(members: int | None) -> None:
    layout, flat = network(members, [4, 8, 2])
    values = inputs().requires_grad_()
    (expected,) = torch.autograd.grad(layer_by_layer(values, layout, flat).square().sum(), values)
    frozen = flat.detach()
    (found,) = torch.autograd.grad(forward(values, layout, frozen).square().sum(), values)
    torch.testing.assert_close(found, expected)
    assert not forward(values.detach(), layout, frozen).requires_grad


@pytest.mark.parametrize("members", MEMBERS)
def test_two_passes_in_flight_do_not_disturb_each_other(members: int | None) -> None:
    layout, flat = network(members, [3, 5, 1])
    first, second = inputs(2, 3, seed=1), inputs(6, 3, seed=2)
    both = forward(first, layout, flat).square().sum() + forward(second, layout, flat).sum()
    expected = layer_by_layer(first, layout, flat).square().sum() + layer_by_layer(second, layout, flat).sum()
    torch.testing.assert_close(torch.autograd.grad(both, flat), torch.autograd.grad(expected, flat))


@pytest.mark.parametrize("members", MEMBERS)
def test_passes_keep_their_own_gradients_in_any_order(members: int | None) -> None:
    layout, flat = network(members, [3, 5, 1])
    batches = [inputs(rows, 3, seed=rows) for rows in (2, 6, 2)]
    losses = [forward(batch, layout, flat).square().sum() for batch in batches]
    found = {number: torch.autograd.grad(losses[number], flat)[0] for number in (1, 2, 0)}
    for number, batch in enumerate(batches):
        (expected,) = torch.autograd.grad(layer_by_layer(batch, layout, flat).square().sum(), flat)
        torch.testing.assert_close(found[number], expected)


def test_a_network_may_feed_itself() -> None:
    layout, flat = network(None, [4, 8, 4])
    values = inputs().requires_grad_()
    ours = forward(forward(values, layout, flat), layout, flat).square().sum()
    theirs = layer_by_layer(layer_by_layer(values, layout, flat), layout, flat).square().sum()
    torch.testing.assert_close(torch.autograd.grad(ours, [values, flat]), torch.autograd.grad(theirs, [values, flat]))


@pytest.mark.parametrize("members", MEMBERS)
def test_padding_has_no_gradient_whatever_the_memory_held(members: int | None) -> None:
    layout, flat = network(members, [3, 5, 1])
    free = padding(layout)
    assert free.any()
    for _ in range(5):
        loss = forward(inputs(2, 3), layout, flat).square().sum()
        litter = [torch.full_like(flat, torch.nan) for _ in range(4)]
        del litter
        (gradient,) = torch.autograd.grad(loss, flat)
        assert not gradient[free].any()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("members", MEMBERS)
def test_a_step_between_a_pass_and_its_gradient_is_a_mistake(members: int | None) -> None:
    """As with any torch layer: the gradient would be that of no network at all."""
    layout, flat = network(members, [3, 5, 1])
    loss = forward(inputs(2, 3), layout, flat).sum()
    with torch.no_grad():
        flat.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        torch.autograd.grad(loss, flat)


@pytest.mark.parametrize("members", MEMBERS)
def test_without_gradient_the_numbers_are_the_same_to_the_bit(members: int | None) -> None:
    layout, flat = network(members, [3, 5, 1], torch.float32)
    values = inputs(7, 3, seed=2).float()
    with torch.no_grad():
        silent = forward(values, layout, flat)
    assert torch.equal(silent, forward(values, layout, flat))


def test_inputs_are_only_read() -> None:
    for sizes in SIZES:
        layout, flat = network(None, sizes)
        values, before = inputs(), flat.detach().clone()
        torch.autograd.grad(forward(values, layout, flat).sum(), flat)
        assert torch.equal(values, inputs())
        assert torch.equal(flat, before)


@pytest.mark.parametrize("members", MEMBERS)
def test_without_a_gradient_of_the_weights_the_inputs_get_the_same_one(members: int | None) -> None:
    layout, flat = network(members, [4, 8, 6, 3])
    gradients = []
    for buffer in (flat, flat.detach()):
        values = inputs().requires_grad_()
        (gradient,) = torch.autograd.grad(forward(values, layout, buffer).square().sum(), values)
        gradients.append(gradient)
    assert torch.equal(*gradients)
