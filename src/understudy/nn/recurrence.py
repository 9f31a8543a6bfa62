"""GRU layers over whole sequences, as one node of the graph with its gradient written out.

On the CPU torch records a dozen small operations for every step of a GRU, and their bookkeeping takes most of the time
of a narrow layer (of an LSTM it has a kernel). Here the loop over steps holds only what must follow in order; products
with inputs, gradients of weights and slopes of gates are taken of all steps at once. Everything elementwise,
g = ∂L/∂h_t and σ′ = σ(1 − σ):

    r, z = σ(x·W + h·U),   n = tanh(x·W_n + r∘(h·U_n)),   h′ = n + z∘(h − n)
    δ_z = g∘(h − n)∘z′,   δ_n = g∘(1 − z)∘(1 − n²),   δ_r = δ_n∘(h·U_n)∘r′,   g_{t-1} = g∘z + δ·Uᵀ

Weights and their order are torch's: [3·units, inputs], in the order r z n.
"""

from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Weights(NamedTuple):
    """Of one layer: what it does with inputs, with its own carry, and both biases."""

    from_input: Tensor
    from_hidden: Tensor
    bias: Tensor
    other: Tensor


def gru_layer(inputs: Tensor, start: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """[T, n, inputs], [n, units] → [T, n, units] and the last of them [n, units]."""
    outputs: Tensor = _GRULayer.apply(inputs, start, *weights)  # type: ignore[no-untyped-call]
    return outputs, outputs[-1]


@final
class _Room:
    """What one run of a layer writes, and a view of every step of it: to make views costs as much as to compute.

    A room is lent to one forward pass and comes back with its backward pass, or at once where there will be none.
    """

    def __init__(self, steps: int, count: int, units: int, like: Tensor) -> None:
        def empty(length: int, width: int) -> Tensor:
            return like.new_empty(length, count, width * units)

        self.hidden, self.gates, self.opens, self.deltas = empty(steps + 1, 1), *(empty(steps, n) for n in (3, 2, 3))
        self.driven, self.news, self.new_deltas, self.slope = (empty(steps, 1) for _ in range(4))
        self.to_keep, self.to_new, self.to_reset = (empty(steps, 1) for _ in range(3))
        self.asked, self.recalled = self.gates[..., : 2 * units], self.gates[..., 2 * units :]
        self.reset, self.keep = self.opens.chunk(2, dim=-1)
        hiddens = self.hidden.unbind(0)
        reset, keep = self.reset.unbind(0), self.keep.unbind(0)
        steps_of = (self.gates, self.asked, self.recalled, self.driven, self.opens, self.news)
        self.forward = [*zip(hiddens, hiddens[1:], reset, keep, *map(_steps, steps_of), strict=False)]
        written = (self.deltas, *self.deltas.chunk(3, dim=-1), self.new_deltas)
        read = (self.slope, self.to_keep, self.to_new, self.to_reset)
        self.backward = [*zip(reset, keep, *map(_steps, (*written, *read)), strict=True)][::-1]


def _steps(values: Tensor) -> tuple[Tensor, ...]:
    return values.unbind(0)


FREE: deque[_Room] = deque(maxlen=8)
"""Rooms that wait for a run of their shape, the newest few; large ones are not kept, as their views cost little beside
their work."""
LARGE = 1 << 20


def _borrow(steps: int, start: Tensor) -> _Room:
    count, units = start.shape
    wanted = (steps, count, units, start.dtype)
    for room in tuple(FREE):
        if (*room.news.shape, room.news.dtype) == wanted:
            with suppress(ValueError):  # another thread was quicker
                FREE.remove(room)
                return room
    return _Room(steps, count, units, start)


def _give_back(room: _Room) -> None:
    if room.gates.numel() < LARGE:
        FREE.append(room)


class _GRULayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, start: Tensor, from_input: Tensor, from_hidden: Tensor, bias: Tensor, other: Tensor
    ) -> Tensor:
        steps, count, units = len(inputs), len(start), start.shape[1]
        room, back = _borrow(steps, start), from_hidden.mT
        driven = torch.addmm(bias, inputs.flatten(0, 1), from_input.mT).view(steps, count, 3 * units)
        torch.add(driven[..., : 2 * units], other[: 2 * units], out=room.asked)
        room.recalled.copy_(other[2 * units :])
        room.driven.copy_(driven[..., 2 * units :])
        room.hidden[0] = start
        for hidden, following, r, z, gate, asked, recalled, driven_new, opens, new in room.forward:
            torch.addmm(gate, hidden, back, out=gate)
            torch.sigmoid(asked, out=opens)
            torch.addcmul(driven_new, r, recalled, out=new).tanh_()
            torch.lerp(new, hidden, z, out=following)
        outputs = room.hidden[1:].clone()
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(inputs, from_input, from_hidden)
            ctx.rooms = [room]
        else:
            _give_back(room)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        inputs, from_input, from_hidden = ctx.saved_tensors
        if not ctx.rooms:
            raise RuntimeError("a GRU layer gives its gradient once: run it forward again")
        room: _Room = ctx.rooms.pop()
        keep, reset, news, before = room.keep, room.reset, room.news, room.hidden[:-1]
        room.slope.copy_(slope)
        torch.sub(before, news, out=room.to_keep).mul_(keep).mul_(1.0 - keep)
        torch.mul(1.0 - keep, 1.0 - news.square(), out=room.to_new)
        torch.mul(room.recalled, reset, out=room.to_reset).mul_(1.0 - reset)
        later = torch.zeros_like(slope[0])
        for r, z, delta, delta_r, delta_z, delta_n, new, told, keeping, newing, resetting in room.backward:
            wanted = told + later
            torch.mul(wanted, keeping, out=delta_z)
            torch.mul(wanted, newing, out=new)
            torch.mul(new, resetting, out=delta_r)
            torch.mul(new, r, out=delta_n)
            later = torch.addmm(wanted.mul_(z), delta, from_hidden)
        driven = torch.cat([room.deltas[..., : 2 * slope.shape[-1]], room.new_deltas], dim=-1)
        found = _gradients(inputs, before, driven, room.deltas, from_input, ctx.needs_input_grad[0], later)
        _give_back(room)
        return found


def _gradients(
    inputs: Tensor, before: Tensor, driven: Tensor, deltas: Tensor, from_input: Tensor, wanted: bool, start: Tensor
) -> tuple[Tensor | None, ...]:
    """Of inputs, where wanted, first carry, both weights and both biases, from those of the gates [T, n, gates·units]:
    `driven` on the side of the inputs, `deltas` on the side of the carry."""
    by_input, by_hidden = driven.flatten(0, 1), deltas.flatten(0, 1)
    below = (by_input @ from_input).view(inputs.shape) if wanted else None
    weights = by_input.mT @ inputs.flatten(0, 1), by_hidden.mT @ before.flatten(0, 1)
    return below, start, *weights, by_input.sum(0), by_hidden.sum(0)
