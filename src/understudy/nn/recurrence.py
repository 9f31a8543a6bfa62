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

from understudy.core.torchscript import scripted


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


class ForwardScan(NamedTuple):
    """Views of every step [n, …] that the way forth reads and writes; `hidden` has one more."""

    hidden: list[Tensor]
    reset: list[Tensor]
    keep: list[Tensor]
    gates: list[Tensor]
    asked: list[Tensor]
    recalled: list[Tensor]
    driven: list[Tensor]
    opens: list[Tensor]
    news: list[Tensor]


class BackwardScan(NamedTuple):
    """The same of the way back."""

    reset: list[Tensor]
    keep: list[Tensor]
    deltas: list[Tensor]
    to_r: list[Tensor]
    to_z: list[Tensor]
    to_n: list[Tensor]
    new_deltas: list[Tensor]
    slope: list[Tensor]
    keeping: list[Tensor]
    newing: list[Tensor]
    resetting: list[Tensor]


def forward_scan(steps: ForwardScan, back: Tensor) -> None:
    """Gates and carries of one step after the other."""
    for t in range(len(steps.gates)):
        torch.addmm(steps.gates[t], steps.hidden[t], back, out=steps.gates[t])
        torch.sigmoid(steps.asked[t], out=steps.opens[t])
        torch.addcmul(steps.driven[t], steps.reset[t], steps.recalled[t], out=steps.news[t]).tanh_()
        torch.lerp(steps.news[t], steps.hidden[t], steps.keep[t], out=steps.hidden[t + 1])


def backward_scan(steps: BackwardScan, from_hidden: Tensor) -> Tensor:
    """Slopes of the gates, from the last step to the first; gives that of the first carry [n, units]."""
    later = torch.zeros_like(steps.slope[0])
    for t in range(len(steps.slope) - 1, -1, -1):
        wanted = steps.slope[t] + later
        torch.mul(wanted, steps.keeping[t], out=steps.to_z[t])
        torch.mul(wanted, steps.newing[t], out=steps.new_deltas[t])
        torch.mul(steps.new_deltas[t], steps.resetting[t], out=steps.to_r[t])
        torch.mul(steps.new_deltas[t], steps.reset[t], out=steps.to_n[t])
        later = torch.addmm(wanted.mul_(steps.keep[t]), steps.deltas[t], from_hidden, out=wanted)
    return later


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
        written = (self.gates, self.asked, self.recalled, self.driven, self.opens, self.news)
        self.forward = ForwardScan(_steps(self.hidden), _steps(self.reset), _steps(self.keep), *map(_steps, written))
        turned = (self.deltas, *self.deltas.chunk(3, dim=-1), self.new_deltas)
        read = (self.slope, self.to_keep, self.to_new, self.to_reset)
        self.backward = BackwardScan(_steps(self.reset), _steps(self.keep), *map(_steps, (*turned, *read)))


def _steps(values: Tensor) -> list[Tensor]:
    return list(values.unbind(0))


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
        scripted(forward_scan)(room.forward, back)
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
        later = scripted(backward_scan)(room.backward, from_hidden)
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
