"""Frames of many clips, one behind the other, by channel: in memory, mapped, or read from a file where they lie."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, final

import torch
from torch import Tensor

from understudy.data.motions.channels import DERIVED, derivable
from understudy.data.motions.clip import Kind

BLOCK = 1 << 14
"""Frames that are looked at in one piece."""


class Rows(Protocol):
    """Numbers of frames [S, K], of one channel or of several side by side."""

    def read(self, index: Tensor) -> Tensor:
        """Of windows of frames `index` [N, T], as [N·T, K]."""

    def block(self, start: int, stop: int) -> Tensor:
        """Of some frames that follow each other."""


@final
@dataclass(frozen=True, eq=False)
class HeldRows:
    """In memory, or mapped and small enough to become resident as a whole."""

    values: Tensor

    def read(self, index: Tensor) -> Tensor:
        return self.values.index_select(0, index.flatten())

    def block(self, start: int, stop: int) -> Tensor:
        return self.values[start:stop]


@final
@dataclass(frozen=True, eq=False)
class StoredRows:
    """On disk, and too many to become resident: a window is one read, which leaves nothing behind."""

    stretches: Callable[[Tensor, int], Tensor]
    """Frames [N] and those after them [N, T, K]."""
    values: Tensor
    """The same, mapped: for whoever goes through them from front to back."""

    def read(self, index: Tensor) -> Tensor:
        frames = index.shape[1]
        straight = index[:, -1] - index[:, 0] == frames - 1
        if bool(straight.all()):
            return self.stretches(index[:, 0], frames).flatten(0, 1)
        rows = torch.empty(*index.shape, self.values.shape[1], dtype=self.values.dtype)
        rows[straight] = self.stretches(index[straight, 0], frames)
        rows[~straight] = self.stretches(index[~straight].flatten(), 1).view(-1, *rows.shape[1:])
        return rows.flatten(0, 1)

    def block(self, start: int, stop: int) -> Tensor:
        return self.values[start:stop]


@final
@dataclass(frozen=True)
class Choice:
    """Some components of a stored channel, in another order, with another sign or from another zero."""

    columns: Tensor
    """[K], of the stored ones."""
    signs: Tensor
    """[K], 1 or −1."""
    zeros: Tensor
    """[K], what is subtracted."""

    def of(self, rows: Tensor) -> Tensor:
        return rows.index_select(1, self.columns) * self.signs - self.zeros


@final
@dataclass(frozen=True)
class Column:
    """A channel among stored rows."""

    rows: Rows
    components: tuple[str, ...]
    kind: Kind = "number"
    choice: Choice | slice | None = None
    """Which of the rows' numbers it has; absent: all."""

    def of(self, rows: Tensor) -> Tensor:
        """[N, K] in float32."""
        if isinstance(self.choice, slice):
            rows = rows[:, self.choice]
        rows = rows.float()
        return self.choice.of(rows) if isinstance(self.choice, Choice) else rows


def _nothing() -> None:
    """What is in memory stays there."""


@final
@dataclass(frozen=True)
class Columns:
    """Stored channels, and those that follow from them."""

    stored: Mapping[str, Column]
    release: Callable[[], None] = _nothing
    """Hands back what going through mapped rows made resident."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Channels that only some clips have, and why that is."""
    sha256: str = ""
    """Of the stored rows of all channels side by side, where somebody has compared it."""

    @property
    def components(self) -> dict[str, tuple[str, ...]]:
        stored = {name: column.components for name, column in self.stored.items()}
        return stored | derivable(stored)

    def kind(self, name: str) -> Kind:
        return self.stored[name].kind if name in self.stored else "number"

    def read(self, names: tuple[str, ...], index: Tensor) -> dict[str, Tensor]:
        """Stored channels [N·T, K] of windows of frames `index` [N, T]; rows that hold several are read once."""
        read: dict[int, Tensor] = {}
        for name in names:
            rows = self.stored[name].rows
            if id(rows) not in read:
                read[id(rows)] = rows.read(index)
        return {name: self.stored[name].of(read[id(self.stored[name].rows)]) for name in names}

    def needed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The stored channels behind these."""
        sources = [(name,) if name in self.stored else DERIVED[name].sources for name in names]
        return tuple(dict.fromkeys(source for several in sources for source in several))

    def derive(self, names: tuple[str, ...], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """These channels, from rows of the stored ones behind them."""
        return {
            name: rows[name]
            if name in self.stored
            else DERIVED[name].compute(*(rows[source] for source in DERIVED[name].sources))
            for name in names
        }

    def beside(self, names: tuple[str, ...], index: Tensor) -> Tensor:
        """These channels side by side [N·T, F]."""
        return torch.cat(list(self.derive(names, self.read(self.needed(names), index)).values()), 1)

    def joined(self, names: tuple[str, ...], frames: int) -> Tensor:
        """The same of all frames [S, F], in memory."""
        found = torch.empty(frames, sum(len(self.components[name]) for name in names))
        for start in range(0, frames, BLOCK):
            stop = min(frames, start + BLOCK)
            rows = self._block(self.needed(names), start, stop)
            torch.cat(list(self.derive(names, rows).values()), 1, out=found[start:stop])
        self.release()
        return found

    def block(self, start: int, stop: int) -> dict[str, Tensor]:
        """Stored channels of frames that follow each other; what reading them made resident is handed back."""
        rows = {name: values.clone() for name, values in self._block(tuple(self.stored), start, stop).items()}
        self.release()
        return rows

    def _block(self, names: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        return {name: self.stored[name].of(self.stored[name].rows.block(start, stop)) for name in names}

    def digest(self, frames: int) -> str:
        """sha256 of all that is handed out."""
        told = [(name, column.kind, column.components) for name, column in self.stored.items()]
        content = self.sha256
        if not content:
            digest = hashlib.sha256()
            for start in range(0, frames, BLOCK):
                rows = self._block(tuple(self.stored), start, min(frames, start + BLOCK))
                digest.update(torch.cat(list(rows.values()), 1).numpy().data)
                self.release()
            content = digest.hexdigest()
        return hashlib.sha256(f"{told!r} {content}".encode()).hexdigest()
