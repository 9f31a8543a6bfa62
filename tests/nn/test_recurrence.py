"""Layers with their gradient written out against torch's kernels."""

import pytest
import torch
from torch import Tensor, nn

from understudy.core.rng import stream
from understudy.core.torchscript import scripted
from understudy.nn import recurrence
from understudy.nn.recurrence import Weights, gru_layer

STEPS, COUNT, INPUTS, UNITS = 7, 3, 5, 4


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_()


def test_outputs_end_and_all_gradients_are_those_of_the_kernel() -> None:
    """In double precision; the loss weighs every output and the end differently."""
    rng, rows = stream(0, "gru"), 3 * UNITS
    weights = Weights(normal(rng, rows, INPUTS), normal(rng, rows, UNITS), normal(rng, rows), normal(rng, rows))
    inputs, carry = normal(rng, STEPS, COUNT, INPUTS), normal(rng, COUNT, UNITS)
    found = gru_layer(inputs, carry, weights)
    expected = torch.gru(inputs, carry[None], list(weights), True, 1, 0.0, False, False, False)
    weighing = [torch.randn(part.shape, generator=rng, dtype=torch.float64) for part in found]
    slopes = []
    for outputs, end in (found, expected):
        loss = (outputs * weighing[0]).sum() + (end.reshape(COUNT, UNITS) * weighing[1]).sum()
        slopes.append(torch.autograd.grad(loss, [inputs, carry, *weights]))
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs.reshape(mine.shape), atol=1e-12)
    for slope, other in zip(*slopes, strict=True):
        assert float(other.abs().max()) > 0.01
        assert torch.allclose(slope, other, atol=1e-12)


def test_compiled_or_not_it_is_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = stream(0, "gru")
    cell = [torch.randn(shape, generator=rng) for shape in ((12, INPUTS), (12, UNITS), (12,), (12,))]
    inputs, carry = torch.randn(STEPS, COUNT, INPUTS, generator=rng), torch.randn(COUNT, UNITS, generator=rng)
    told = []
    for compile_it in (True, True, True, False):  # TorchScript optimises what has run twice
        monkeypatch.setattr(recurrence, "scripted", scripted if compile_it else lambda function: function)
        weights = Weights(*(part.clone().requires_grad_() for part in cell))
        outputs, _ = gru_layer(inputs, carry, weights)
        told.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(weights))])
    for other in told[1:]:
        assert all(torch.equal(*pair) for pair in zip(told[0], other, strict=True))


def test_inputs_that_need_no_gradient_get_none() -> None:
    cell, inputs = nn.GRU(INPUTS, UNITS), torch.randn(STEPS, COUNT, INPUTS)
    outputs, _ = gru_layer(inputs, torch.zeros(COUNT, UNITS), Weights(*cell.all_weights[0]))
    outputs.sum().backward()  # type: ignore[no-untyped-call]
    assert inputs.grad is None
    assert all(part.grad is not None for part in cell.parameters())


def test_runs_of_one_shape_do_not_disturb_each_other() -> None:
    """Two forward passes, then their backward passes in either order, are the same as one after the other."""
    cells, rng = [nn.GRU(INPUTS, UNITS) for _ in range(2)], stream(0, "inputs")
    inputs = [torch.randn(STEPS, COUNT, INPUTS, generator=rng) for _ in cells]

    def loss(number: int) -> Tensor:
        weights = Weights(*cells[number].all_weights[0])
        return gru_layer(inputs[number], torch.zeros(COUNT, UNITS), weights)[0].square().sum()

    def slopes(number: int, told: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(told, list(cells[number].parameters()))

    apart = [slopes(number, loss(number)) for number in range(2)]
    losses = [loss(number) for number in range(2)]
    with torch.no_grad():
        loss(0)
    together = [slopes(number, losses[number]) for number in range(2)]
    for mine, theirs in zip(apart, together, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


def test_a_gradient_is_given_once() -> None:
    cell = nn.GRU(INPUTS, UNITS)
    inputs = torch.randn(STEPS, COUNT, INPUTS)
    total = gru_layer(inputs, torch.zeros(COUNT, UNITS), Weights(*cell.all_weights[0]))[0].sum()
    torch.autograd.grad(total, list(cell.parameters()), retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        torch.autograd.grad(total, list(cell.parameters()))
