"""One run in several processes (torchrun): each computes with its slice of a batch, and what counts is of all of it.

    rows        the same indices are drawn everywhere; process r has the r-th of W equal stretches     → Share.of
    noise       likewise drawn for the whole batch, and cut                                            → slice_of_draw
    gradients   the mean of the slices' ones, which is that of the whole batch                         → averaged
    numbers     by which rows are weighed (mean|Q|, how many rows are valid): the same                 → across
    choices     among the rows of a batch: of all of it                                                → whole, own

All that is meant by "the batch" in losses is then the whole one. Within `shared` alone: whoever evaluates, monitors or
logs is by itself. In one process nothing of this does anything.

The sum of two halves is not rounded as the sum of the whole is: gradients differ from those of one process by the last
bit or so. Draws are the same to the bit, and so are all processes among themselves.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, final

import torch
from torch import Tensor

from understudy.core.errors import RunError

Answer = TypeVar("Answer")


class LostProcessError(RunError):
    """Another process of the run has ended, or does not answer."""


@final
@dataclass(frozen=True)
class Share:
    """Which part of a batch is this process's."""

    rank: int = 0
    size: int = 1

    def of(self, rows: Tensor, dim: int = 0) -> Tensor:
        """Its stretch of [..., B, ...], whose dimension `dim` is of rows."""
        if self.size == 1:
            return rows
        count = rows.shape[dim] // self.size
        return rows.narrow(dim, self.rank * count, count)

    def gathered(self, rows: Tensor) -> Tensor:
        """The whole [B, ...] of everybody's stretches."""
        if self.size == 1:
            return rows
        sent = rows.contiguous().view(torch.uint8)
        parts = [torch.empty_like(sent) for _ in range(self.size)]
        reached(lambda: torch.distributed.all_gather(parts, sent))
        return torch.cat(parts).view(rows.dtype)


ALL = Share()
"""Of one process: everything."""


def process_share() -> Share:
    """What torchrun, or whoever speaks as it does, says of this process."""
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return Share(int(rank), int(size)) if rank.isdecimal() and size.isdecimal() and int(size) > 1 else ALL


@dataclass
class _Scope:
    share: Share = ALL


_SCOPE = _Scope()


@contextmanager
def shared(share: Share) -> Iterator[None]:
    """Inside, a batch is what all processes have together; all of them must come here."""
    before, _SCOPE.share = _SCOPE.share, share
    try:
        yield
    finally:
        _SCOPE.share = before


def across(number: Tensor) -> Tensor:
    """The mean of it over processes, a constant: of whatever is a mean or a sum over rows."""
    if _SCOPE.share.size == 1:
        return number
    mean = number.detach().clone() if number.is_floating_point() else number.float()
    return _sum(mean) / _SCOPE.share.size


def averaged(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """The gradients of the whole batch."""
    if _SCOPE.share.size == 1:
        return gradients
    flat = _sum(torch.cat([gradient.reshape(-1) for gradient in gradients])) / _SCOPE.share.size
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]


def whole(rows: Tensor) -> Tensor:
    """The batch [B] of which these are this process's rows, a constant: to rank them, say; `own` is the way back."""
    return _SCOPE.share.gathered(rows.detach())


def own(rows: Tensor) -> Tensor:
    """This process's rows of a whole batch [B]."""
    return _SCOPE.share.of(rows)


def slice_of_draw(shape: Sequence[int], dim: int | None, draw: Callable[[list[int]], Tensor]) -> Tensor:
    """This process's part, of `shape`, of what `draw` gives for the whole batch; `dim` is that of rows, None where
    there are none and everybody has the same."""
    share, whole = _SCOPE.share, list(shape)
    if share.size == 1 or dim is None:
        return draw(whole)
    whole[dim] *= share.size
    return share.of(draw(whole), dim)


def _sum(values: Tensor) -> Tensor:
    reached(lambda: torch.distributed.all_reduce(values))
    return values


def reached(ask: Callable[[], Answer]) -> Answer:
    """What others take part in; whoever is gone is told of in a sentence."""
    try:
        return ask()
    except RuntimeError as error:
        raise LostProcessError(
            "torchrun",
            "another process of this run has ended, or has not answered in time",
            do="What it said stands above. What was saved is whole: the same torchrun with `resume RUN` goes on.",
        ) from error
