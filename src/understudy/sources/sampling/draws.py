"""Which rows come next.

A draw has no past: block b is a function of the seed and of b alone. Whoever asks, in whatever order and from
however many threads or processes, gets the same rows, and a sampler's whole state is a counter.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.rng import stream
from understudy.data.dataset import Dataset

ROUNDS = 8
SHUFFLED = 1 << 14
"""Up to this many rows an epoch is shuffled outright; a Feistel network on a few rows would be visibly uneven."""
SPAN = 1 << 16
"""Rows of one alias table: what is made on the way to it stays small, however many rows there are."""
NARROW = 1 << 24
"""Up to this many rows 32 random bits serve, as torch takes them: no row is likelier than another by over 1/256."""
BY_WEIGHT = "rows drawn by weight may be drawn again, which replacement=false forbids"


class Draw(Protocol):
    """Row numbers, a block at a time."""

    def indices(self, number: int) -> Tensor:
        """The rows of block `number` [size], int64."""


@final
@dataclass(frozen=True)
class Uniform:
    """Every row as likely as any other, with replacement."""

    seed: int
    count: int
    size: int

    def indices(self, number: int) -> Tensor:
        return uniform_rows(self.size, self.count, stream(self.seed, f"sample/{number}"))


def uniform_rows(size: int, count: int, rng: torch.Generator) -> Tensor:
    """Row numbers below `count` [size], each as likely as any other, with replacement.

    Torch draws below 2²⁸ by the remainder of 32 bits: of 200 million rows the first third would come 5 % oftener.
    """
    if count <= NARROW:
        return torch.randint(count, (size,), generator=rng)
    return torch.randint(1 << 62, (size,), generator=rng) % count


@final
@dataclass(frozen=True, eq=False)
class Weighted:
    """Rows in proportion to their weights, with replacement; a row of weight 0 is never drawn.

    First a span of neighbouring rows by the spans' sums, then a row of the span by its alias table: a few reads each,
    where a search in one long running sum would miss the cache at every turn.
    """

    seed: int
    sums: Tensor
    """Running sum of the spans' weights [spans], float64."""
    keep: Tensor
    """Chance of a row to stay itself [spans · span], float32."""
    other: Tensor
    """The row of the same span it becomes otherwise [spans · span], int32."""
    size: int

    @classmethod
    def of(cls, seed: int, weights: NDArray[np.float64], size: int) -> "Weighted":
        """`weights` [count] are finite, none is negative and one is positive."""
        span, largest = min(SPAN, len(weights)), weights.max()
        spans = -(-len(weights) // span)
        sums, keep, other = np.empty(spans), np.empty(spans * span, np.float32), np.empty(spans * span, np.int32)
        for number in range(spans):
            place = slice(number * span, (number + 1) * span)
            part = weights[place] / largest
            sums[number] = part.sum()
            keep[place], other[place] = alias_table(np.pad(part, (0, span - len(part))))
        tables = torch.from_numpy(np.cumsum(sums)), torch.from_numpy(keep), torch.from_numpy(other)
        return cls(seed, *tables, size)

    def indices(self, number: int) -> Tensor:
        rng = stream(self.seed, f"sample/{number}")
        span = len(self.keep) // len(self.sums)
        # A fraction of 53 bits is below 1 by so much that its product with the total never rounds up to the total.
        levels = torch.rand(self.size, dtype=torch.float64, generator=rng) * self.sums[-1]
        first = torch.searchsorted(self.sums, levels, right=True) * span
        row = first + torch.randint(span, (self.size,), generator=rng)
        stays = torch.rand(self.size, dtype=torch.float64, generator=rng) < self.keep.index_select(0, row)
        return torch.where(stays, row, first + self.other.index_select(0, row))


def alias_table(weights: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """For rows drawn evenly: the chance to stay, and the row to become otherwise (Walker 1977); each [count].

    Light rows, one after the other, borrow what they lack of an even share from the first heavy row that has
    something left. A heavy row that lends its way below an even share borrows from the next. Running sums of what
    light rows lack and of what heavy rows have too much tell who meets whom (Hübschle-Schneider and Sanders 2019).
    """
    keep, other = np.ones(len(weights), np.float32), np.arange(len(weights), dtype=np.int32)
    if not weights.any():
        return keep, other
    shares = weights / weights.max()
    shares *= len(weights) / shares.sum()
    light, heavy = np.flatnonzero(shares < 1), np.flatnonzero(shares >= 1)
    if not len(light) or not len(heavy):
        return keep, other
    lacking, spare = np.append(0, np.cumsum(1 - shares[light])), np.cumsum(shares[heavy] - 1)
    lender = np.minimum(np.searchsorted(spare, lacking[:-1], side="right"), len(heavy) - 1)
    keep[light], other[light] = shares[light], heavy[lender]
    last = np.minimum(np.searchsorted(lacking, spare[:-1]), len(light))
    keep[heavy[:-1]], other[heavy[:-1]] = 1 - np.clip(lacking[last] - spare[:-1], 0, 1), heavy[1:]
    return keep, other


@final
@dataclass(frozen=True)
class Permuted:
    """Every row once per epoch, in an order of the epoch's own; a block may lie across epochs."""

    seed: int
    count: int
    size: int

    def indices(self, number: int) -> Tensor:
        first, pieces = number * self.size, []
        end = first + self.size
        while first < end:
            epoch, place = divmod(first, self.count)
            taken = min(self.count - place, end - first)
            rng = stream(self.seed, f"sample/epoch/{epoch}")
            pieces.append(shuffled(torch.arange(place, place + taken), self.count, rng))
            first += taken
        return torch.cat(pieces)


def rows_without_replacement(most: int, count: int, rng: torch.Generator) -> Tensor:
    """At most so many row numbers below `count` [min(most, count)], no row twice; very many rows are never listed."""
    if count <= NARROW:
        return torch.randperm(count, generator=rng)[:most]
    return shuffled(torch.arange(min(most, count)), count, rng)


def shuffled(places: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """What a permutation of [0, count), drawn from `rng`, has at `places` [B]."""
    if count <= SHUFFLED:
        return torch.randperm(count, generator=rng).index_select(0, places)
    return Feistel.of(count, rng).at(places)


@final
@dataclass(frozen=True, eq=False)
class Feistel:
    """A permutation of [0, count) that knows its value at any place without being written down.

    A place is a cell of a grid of about √count rows and as many columns. One round turns each column by an amount
    drawn for it, the next each row: bijections, whose amounts are all there is to keep (Luby and Rackoff 1988, with
    addition for exclusive or). From the few cells beyond `count` one walks on until inside (Black and Rogaway 2002).
    """

    count: int
    columns: int
    tables: tuple[Tensor, ...]
    """Amounts, alternately one per column [columns] and one per row [rows]."""

    @classmethod
    def of(cls, count: int, rng: torch.Generator) -> "Feistel":
        rows = isqrt(count - 1) + 1
        columns = -(-count // rows)
        sides = [(rows, columns), (columns, rows)] * (ROUNDS // 2)
        return cls(count, columns, tuple(torch.randint(high, (size,), generator=rng) for high, size in sides))

    def at(self, places: Tensor) -> Tensor:
        """Values at `places` [B]."""
        values = self._once(places)
        while bool((outside := values >= self.count).any()):
            values[outside] = self._once(values[outside])
        return values

    def _once(self, cells: Tensor) -> Tensor:
        rows = len(self.tables[1])
        row, column = cells // self.columns, cells % self.columns
        for by_column, by_row in zip(self.tables[::2], self.tables[1::2], strict=True):
            row = (row + by_column.index_select(0, column)) % rows
            column = (column + by_row.index_select(0, row)) % self.columns
        return row * self.columns + column


def choose_draw(
    dataset: Dataset, size: int, seed: int, *, weights: str = "", replacement: bool = True, among: Tensor | None = None
) -> Draw:
    """Blocks of `size` out of a dataset's steps, or of the steps `among` [count], numbered as they stand there."""
    count = dataset.steps if among is None else len(among)
    if not weights:
        return Uniform(seed, count, size) if replacement else Permuted(seed, count, size)
    if not replacement:
        raise ConfigError(
            "source.replacement", BY_WEIGHT, got=f"weights={weights} and replacement=false", do="Leave one of them out."
        )
    return Weighted.of(seed, read_weights(dataset, weights, among), size)


def read_weights(dataset: Dataset, name: str, among: Tensor | None = None) -> NDArray[np.float64]:
    """The column `name` as weights of the steps [steps], or of the steps `among` [count]; or an error that says why it
    cannot serve."""
    where = f"dataset '{dataset.name}', column '{name}'"
    if name not in dataset.extra:
        raise DataError(where, "no such column to weigh rows by", do=did_you_mean(name, dataset.extra))
    column = dataset.extra[name].cpu().numpy()
    if column.shape != (dataset.steps,):
        raise DataError(where, "weights are one number per step", got=list(column.shape), expected=[dataset.steps])
    weights, first = np.empty(dataset.steps), 0
    for block in dataset.blocks(column):
        weights[first : first + len(block)] = block
        first += len(block)
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{where}, row {row}",
            "cannot be a weight",
            got=weights[row],
            expected="a finite number, not below 0",
            do=f"{int(wrong.sum())} such rows here.",
        )
    chosen = weights if among is None else weights[among.numpy()]
    if not chosen.any():
        raise DataError(where, "no row that could be drawn has a weight above 0")
    return chosen
