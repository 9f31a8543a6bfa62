"""Frames of many clips, one behind the other, by channel: in memory or mapped."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from understudy.data.motions.channels import DERIVED, derivable
from understudy.data.motions.clip import Kind

BLOCK = 1 << 14
"""Frames that are looked at in one piece."""


def _nothing() -> None:
    """What is in memory stays there."""


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
    """A stored channel [S, K]."""

    values: Tensor
    components: tuple[str, ...]
    kind: Kind = "number"
    choice: Choice | slice | None = None
    """What is handed out of it; absent: all."""

    @property
    def size(self) -> int:
        return len(self.components)

    def take(self, index: Tensor) -> Tensor:
        """Rows [N, K] in float32."""
        return self._chosen(self.values.index_select(0, index))

    def block(self, start: int, stop: int) -> Tensor:
        return self._chosen(self.values[start:stop])

    def _chosen(self, rows: Tensor) -> Tensor:
        rows = rows.view(len(rows), -1)
        if isinstance(self.choice, slice):
            rows = rows[:, self.choice]
        rows = rows.float()
        return self.choice.of(rows) if isinstance(self.choice, Choice) else rows


@final
@dataclass(frozen=True)
class Columns:
    """Stored channels, and those that follow from them."""

    stored: Mapping[str, Column]
    mapped: bool = False
    """Larger than what may be resident: rows are read in small pieces, and their pages handed back."""
    release: Callable[[], None] = _nothing
    missing: Mapping[str, str] = field(default_factory=dict)
    """Channels that only some clips have, and why that is."""

    @property
    def components(self) -> dict[str, tuple[str, ...]]:
        stored = {name: column.components for name, column in self.stored.items()}
        return stored | derivable(stored)

    def kind(self, name: str) -> Kind:
        return self.stored[name].kind if name in self.stored else "number"

    def take(self, names: tuple[str, ...], index: Tensor) -> dict[str, Tensor]:
        """Channels [N, K] of frames `index` [N]."""
        return self.derive(names, {name: self.stored[name].take(index) for name in self.needed(names)})

    def needed(self, names: tuple[str, ...]) -> list[str]:
        """The stored channels behind these."""
        sources = [(name,) if name in self.stored else DERIVED[name].sources for name in names]
        return list(dict.fromkeys(source for several in sources for source in several))

    def derive(self, names: tuple[str, ...], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """These channels, from rows of the stored ones behind them."""
        return {
            name: rows[name]
            if name in self.stored
            else DERIVED[name].compute(*(rows[source] for source in DERIVED[name].sources))
            for name in names
        }

    def joined(self, names: tuple[str, ...], frames: int) -> Tensor:
        """These channels of all frames side by side [S, F], in memory."""
        found = torch.empty(frames, sum(len(self.components[name]) for name in names))
        for start in range(0, frames, BLOCK):
            stop = min(frames, start + BLOCK)
            rows = {name: self.stored[name].block(start, stop) for name in self.needed(names)}
            torch.cat(list(self.derive(names, rows).values()), 1, out=found[start:stop])
            self.release()
        return found

    def digest(self, frames: int) -> str:
        """sha256 of all that is stored and handed out."""
        digest = hashlib.sha256()
        for name, column in sorted(self.stored.items()):
            digest.update(f"{name} {column.kind} {column.components!r}\n".encode())
            for start in range(0, frames, BLOCK):
                digest.update(column.block(start, min(frames, start + BLOCK)).contiguous().numpy().data)
                self.release()
        return digest.hexdigest()
