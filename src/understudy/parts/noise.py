"""Random numbers inside an update: a named stream whose state is a tensor, so that compiled code can draw from it.

A `torch.Generator` cannot enter a compiled graph; its state, written by an operator that says so, can. Eager and
compiled updates draw the same numbers, and a checkpoint holds where the stream stands.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.ranks import slice_of_draw
from understudy.core.rng import stream


@final
@dataclass
class Noise:
    """Draws on the CPU, whatever the device: the same numbers everywhere."""

    state: Tensor
    """What `torch.Generator.get_state` gives, uint8 and always on the CPU."""

    @classmethod
    def named(cls, seed: int, name: str) -> "Noise":
        return cls(stream(seed, name).get_state())

    def normal(self, *shape: int) -> Tensor:
        """Unit normal numbers of this shape [..., B, A]."""
        return slice_of_draw(shape, -2, lambda whole: _draw(self.state, whole, True))

    def uniform(self, *shape: int, rows: int | None = -2) -> Tensor:
        """Numbers between -1 and 1 of this shape; `rows` is the dimension of a batch's rows, None where there is
        none."""
        return slice_of_draw(shape, rows, lambda whole: _draw(self.state, whole, False))


def _draw(state: Tensor, shape: list[int], normal: bool) -> Tensor:
    if torch.compiler.is_compiling():
        drawn: Tensor = _draw_operator(state, shape, normal)
        return drawn
    return _draw_now(state, shape, normal)


def _draw_now(state: Tensor, shape: list[int], normal: bool) -> Tensor:
    generator = torch.Generator()
    generator.set_state(state)
    numbers = torch.empty(shape)
    numbers = numbers.normal_(generator=generator) if normal else numbers.uniform_(-1.0, 1.0, generator=generator)
    state.copy_(generator.get_state())
    return numbers


def _shape_of_a_draw(state: Tensor, shape: list[int], normal: bool) -> Tensor:
    return torch.empty(shape)


# Not `custom_op`: what it puts around every call takes twice as long as the draw.
torch.library.define("understudy::draw", "(Tensor(a!) state, int[] shape, bool normal) -> Tensor")
torch.library.impl("understudy::draw", "CPU")(_draw_now)
torch.library.register_fake("understudy::draw", _shape_of_a_draw)
_draw_operator = torch.ops.understudy.draw.default
