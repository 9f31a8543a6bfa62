"""Memory with an explicit carry: GRU and LSTM, one step at a time or whole sequences with resets inside.

A carry is a tuple of tensors [N, layers, units], one row for each environment, so that `part[rows]` picks environments.
Nothing is kept in the module: whoever bootstraps a value cannot advance a memory.

Sequences are cut at resets, and the pieces run side by side as one batch (R: the carry is zero before this step):

    environment 0   a b c|R d e              piece 0   a b c · ·    starts with environment 0's carry
    environment 1   f g h   i j     →        piece 1   d e · · ·    starts with zeros
                                             piece 2   f g h i j    starts with environment 1's carry

so there is no loop over steps in Python. The dots are zeros, not uninitialised memory, and nothing is read there: they
get a gradient of zero, and zero times a finite number is zero. Where there would be many of them (episodes of very
different lengths) the pieces are packed instead (sorted by length; a step runs only those that still last). Steps and
sequences agree to about 1e-7: products of other shapes round otherwise.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from understudy.core.protocols import Carry
from understudy.core.settings import Count, Settings
from understudy.nn.init import orthogonal
from understudy.nn.recurrence import Weights, gru_layer

WASTE = 3
"""Pieces are packed where padding would make this many times as many rows: it is the slower kernel for each of them."""

LARGEST_STATE = 1.0 - 1e-4
"""Of a state drawn at random: its cell is then within ±5."""


class MemorySettings(Settings):
    """What is remembered between steps."""

    kind: Literal["none", "gru", "lstm"] = "none"
    """`none`, `gru` or `lstm`."""
    units: Count = 256
    """Count of each layer."""
    layers: int = Field(1, ge=1, le=100)
    """Layers, each on top of the one before."""


@dataclass(frozen=True)
class Pieces:
    """How [T, N] rows, and where asked one more at each piece's end, fall into pieces."""

    piece: Tensor
    """[T, N]: which piece a row is of, counted through environment after environment."""
    step: Tensor
    """[T, N]: the row's place in it."""
    last: Tensor
    """[pieces]: the last row of each, counted through [T, N]."""

    @classmethod
    def cut(cls, resets: Tensor) -> "Pieces":
        steps, environments = resets.shape
        starts = resets.T.clone()
        starts[:, 0] = True
        piece = starts.flatten().cumsum(0) - 1
        first = starts.flatten().nonzero().squeeze(1)
        step = torch.arange(starts.numel(), device=resets.device) - first[piece]
        ends = torch.cat([first[1:], first.new_tensor([starts.numel()])]) - 1
        last = ends % steps * environments + ends // steps
        return cls(piece.view(environments, steps).T, step.view(environments, steps).T, last)

    @property
    def whole(self) -> bool:
        """No reset inside: every environment is one piece."""
        return len(self.last) == self.piece.shape[1]

    @property
    def lengths(self) -> Tensor:
        """[pieces]."""
        return self.step.flatten()[self.last] + 1

    def places(self, rows: int) -> tuple[Tensor, Tensor]:
        """Piece and step of T·N rows, or of these and of one more behind each piece."""
        piece, step = self.piece.flatten(), self.step.flatten()
        if rows == len(piece):
            return piece, step
        every = torch.arange(len(self.last), device=piece.device)
        return torch.cat([piece, every]), torch.cat([step, self.lengths])

    def successors(self) -> Tensor:
        """[T·N]: which of T·N + pieces rows follows each: the next step, or the one behind its piece."""
        total, environments = self.piece.numel(), self.piece.shape[1]
        following = torch.arange(total, device=self.last.device) + environments
        following[self.last] = total + torch.arange(len(self.last), device=self.last.device)
        return following


class Memory(nn.Module):
    """[N, inputs] → [N, units] and the next carry, or whole sequences [T, N, inputs] → [T, N, units]."""

    def __init__(self, inputs: int, settings: MemorySettings, rng: torch.Generator) -> None:
        super().__init__()
        self.size = settings.units
        self.parts = 2 if settings.kind == "lstm" else 1
        kind = nn.LSTM if settings.kind == "lstm" else nn.GRU
        blank = kind(inputs, settings.units, settings.layers, device="meta")  # draws nothing from torch's own stream
        self.cells = blank.to_empty(device=torch.get_default_device())
        self._start(rng)

    @torch.no_grad()
    def _start(self, rng: torch.Generator) -> None:
        """Every gate orthogonal with gain 1, biases zero."""
        for parameter in self.cells.parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            else:
                for gate in torch.split(parameter, self.size):
                    orthogonal(gate, 1.0, rng)

    def initial(self, count: int) -> Carry:
        first = next(self.cells.parameters())
        return tuple(first.new_zeros(count, self.cells.num_layers, self.size) for _ in range(self.parts))

    def random_carry(self, count: int, rng: torch.Generator) -> Carry:
        """States it could be in [N, layers, units]: h = u uniform in (−1, 1); with a cell, h = o·u and c = atanh u,
        o uniform in (0, 1), as h = o·tanh c."""
        first = next(self.cells.parameters())
        shape = (count, self.cells.num_layers, self.size)
        inside = (2.0 * torch.rand(shape, generator=rng) - 1.0).clamp(-LARGEST_STATE, LARGEST_STATE)
        if self.parts == 1:
            return (inside.to(first),)
        opened = torch.rand(shape, generator=rng)
        return (opened * inside).to(first), torch.atanh(inside).to(first)

    def step(self, features: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """One step of N environments: [N, inputs] → [N, units], and what is remembered after it."""
        outputs, after = self._run(features.unsqueeze(0), carry)
        return outputs.squeeze(0), after

    def sequence(self, features: Tensor, carry: Carry, resets: Tensor) -> Tensor:
        """[T, N, inputs] → [T, N, units]; the carry is that before the first step, zero wherever `resets` [T, N]."""
        flat = self.run(features.flatten(0, 1), Pieces.cut(resets), carry, resets)
        return flat.view(*resets.shape, self.size)

    def run(self, rows: Tensor, pieces: Pieces, carry: Carry, resets: Tensor) -> Tensor:
        """Outputs [rows, units] of the T·N steps; or of these and of one more behind each piece [T·N + pieces]."""
        started = self._carries(pieces, carry, resets)
        longest = int(pieces.lengths.max()) + (len(rows) > resets.numel())
        wasteful = longest * len(pieces.last) > WASTE * len(rows)
        return (self._packed if wasteful else self._grid)(rows, pieces, started)[0]

    def after(self, features: Tensor, carry: Carry, resets: Tensor) -> Carry:
        """What is remembered after the last of [T, N] steps."""
        pieces = Pieces.cut(resets)
        started = self._carries(pieces, carry, resets)
        rows = features.flatten(0, 1)
        _, ends = self._grid(rows, pieces, started) if pieces.whole else self._packed(rows, pieces, started)
        return tuple(part[pieces.piece[-1]] for part in ends)

    def _carries(self, pieces: Pieces, carry: Carry, resets: Tensor) -> Carry:
        """What each piece starts with [pieces, layers, units]."""
        kept = forget(carry, resets[0])
        if pieces.whole:
            return kept
        blank = self.initial(len(pieces.last))
        return tuple(part.index_copy(0, pieces.piece[0], mine) for part, mine in zip(blank, kept, strict=True))

    def _grid(self, rows: Tensor, pieces: Pieces, started: Carry) -> tuple[Tensor, Carry]:
        """Pieces side by side [steps, pieces], padded with zeros."""
        count = len(pieces.last)
        if pieces.whole:
            outputs, ends = self._run(rows.view(-1, count, rows.shape[1]), started)
            return outputs.flatten(0, 1), ends
        piece, step = pieces.places(len(rows))
        places = step * count + piece
        longest = int(step.max()) + 1
        grid = rows.new_zeros(longest * count, rows.shape[1]).index_copy(0, places, rows)
        outputs, ends = self._run(grid.view(longest, count, rows.shape[1]), started)
        return outputs.flatten(0, 1)[places], ends

    def _packed(self, rows: Tensor, pieces: Pieces, started: Carry) -> tuple[Tensor, Carry]:
        """Pieces sorted by length, step by step; a step holds only those that still last."""
        piece, step = pieces.places(len(rows))
        ranks = torch.argsort(pieces.lengths, descending=True, stable=True)
        rank = torch.argsort(ranks)
        lasting = torch.bincount(step)
        places = (lasting.cumsum(0) - lasting)[step] + rank[piece]
        packed = PackedSequence(rows[torch.argsort(places)], lasting.cpu())
        outputs, ends = self._run(packed, tuple(part[ranks] for part in started))
        return outputs[places], tuple(part[rank] for part in ends)

    def _run(self, values: Tensor | PackedSequence, carry: Carry) -> tuple[Tensor, Carry]:
        """Our layers for sequences through a GRU on the CPU; otherwise torch's kernel."""
        if self.parts == 1 and isinstance(values, Tensor) and values.is_cpu and len(values) > 1:
            return self._run_layers(values, carry)
        return self._run_kernel(values, carry)

    def _run_layers(self, values: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        ends: list[Tensor] = []
        for number, weights in enumerate(self.cells.all_weights):
            values, end = gru_layer(values, carry[0][:, number], Weights(*weights))
            ends.append(end)
        return values, (torch.stack(ends, dim=1),)

    def _run_kernel(self, values: Tensor | PackedSequence, carry: Carry) -> tuple[Tensor, Carry]:
        """torch's kernel wants layers first, and an LSTM's two states as a pair."""
        layers_first = tuple(part.transpose(0, 1).contiguous() for part in carry)
        outputs, after = self.cells(values, layers_first if self.parts == 2 else layers_first[0])
        ends = after if self.parts == 2 else (after,)
        flat: Tensor = outputs.data if isinstance(outputs, PackedSequence) else outputs
        return flat, tuple(part.transpose(0, 1) for part in ends)


def forget(carry: Carry, rows: Tensor) -> Carry:
    """The carry with zeros in the rows [N] that are told, whatever was there."""
    return tuple(part.masked_fill(rows.view(-1, *[1] * (part.dim() - 1)), 0.0) for part in carry)
