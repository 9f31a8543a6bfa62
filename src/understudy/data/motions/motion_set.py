"""A set of motions: clips at the control step, of which windows and moments are drawn."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.motions.clip import near_or_all
from understudy.data.motions.columns import Columns
from understudy.data.motions.resampling import between

JOINED_BUDGET = 256 << 20
"""Bytes of windows' channels up to which they are laid side by side in memory: a window is then one read."""


@final
@dataclass(frozen=True)
class ClipTable:
    """Where clips lie in the columns, and how they are drawn. Every tensor is [C]."""

    names: tuple[str, ...]
    starts: Tensor
    lengths: Tensor
    """In frames."""
    looped: Tensor
    weights: Tensor
    shifts: Tensor
    """[C, 3]: what a round adds to places in the world."""
    optional: bool = False
    """Clips that are too short for a window are left out, as long as there are others: episodes end when they end."""


def clip_table(
    names: Sequence[str], lengths: Sequence[int], looped: Sequence[bool], weights: Sequence[float], shifts: Tensor
) -> ClipTable:
    """Clips one behind the other."""
    total = torch.tensor(lengths, dtype=torch.int64)
    return ClipTable(
        tuple(names),
        total.cumsum(0) - total,
        total,
        torch.tensor(looped, dtype=torch.bool),
        torch.tensor(weights, dtype=torch.float64),
        shifts,
    )


@final
class MotionSet:
    """Immutable; the `Motions` that a run's settings name."""

    def __init__(
        self,
        name: str,
        columns: Columns,
        table: ClipTable,
        *,
        step: float = math.nan,
        facts: dict[str, Any] | None = None,
        content: str = "",
    ) -> None:
        """`content`: the digest of the columns, where somebody knows it already."""
        self.name = name
        self._columns = columns
        self._table = table
        self._step = step
        self._facts = facts or {}
        self._content = content
        self._any_loop = bool(table.looped.any())
        self._moments = (table.weights * self.durations).cumsum(0)

    @property
    def step(self) -> float:
        return self._step

    @cached_property
    def channels(self) -> dict[str, tuple[str, ...]]:
        return self._columns.components

    @property
    def clips(self) -> tuple[str, ...]:
        return self._table.names

    @property
    def frames(self) -> int:
        """Of all clips together."""
        return int(self._table.lengths.sum())

    @property
    def lengths(self) -> Tensor:
        """Frames of each clip [C]."""
        return self._table.lengths

    @property
    def weights(self) -> Tensor:
        """[C]"""
        return self._table.weights

    @cached_property
    def durations(self) -> Tensor:
        return self._table.lengths - (~self._table.looped).to(torch.int64)

    @property
    def looped(self) -> Tensor:
        return self._table.looped

    @cached_property
    def fingerprint(self) -> str:
        table = self._table
        told = {
            "clips": table.names,
            "lengths": table.lengths.tolist(),
            "looped": table.looped.tolist(),
            "shifts": table.shifts.tolist(),
            "step": None if math.isnan(self.step) else self.step,
            "content": self._content or self._columns.digest(self._stored_frames),
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    @property
    def _stored_frames(self) -> int:
        return int((self._table.starts + self._table.lengths).max())

    def windows(self, channels: Sequence[str], frames: int) -> "Windows":
        self.check_channels(channels)
        if frames < 1:
            raise DataError(f"motions '{self.name}'", "a window has no frames", got=frames, expected="at least 1")
        return Windows(self._columns, self._table, tuple(channels), frames, self._counts(frames))

    def _counts(self, frames: int) -> Tensor:
        """How many windows each clip has [C]."""
        table = self._table
        counts = torch.where(table.looped, table.lengths, (table.lengths - frames + 1).clamp(min=0))
        short = ((counts == 0) & (table.weights > 0)).nonzero().flatten().tolist()
        if short and not (table.optional and bool((counts * table.weights > 0).any())):
            names = ", ".join(f"'{table.names[number]}'" for number in short[:4])
            more = f" and {len(short) - 4:,} more" if len(short) > 4 else ""
            raise DataError(
                f"motions '{self.name}', {'clip' if len(short) == 1 else 'clips'} {names}{more}",
                "shorter than a window",
                got=f"{int(table.lengths[short[0]])} frames",
                expected=f"at least {frames}",
                do="Loop it, give it weight 0, or ask for fewer frames.",
            )
        return counts

    def check_channels(self, channels: Sequence[str]) -> None:
        """Whatever is not there is told, beside what is."""
        if not channels:
            raise DataError(f"motions '{self.name}'", "no channels were asked for", expected=", ".join(self.channels))
        if repeated := sorted({name for name in channels if list(channels).count(name) > 1}):
            raise DataError(f"motions '{self.name}'", "a channel twice", got=", ".join(repeated))
        for name in channels:
            if name in self.channels:
                continue
            raise DataError(
                f"motions '{self.name}', channel '{name}'",
                self._columns.missing.get(name, "no such channel"),
                do=near_or_all(name, self.channels),
            )

    def draw_moments(self, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        clip, time = _drawn(self._moments, self._table.weights, count, rng)
        return clip, time.clamp(max=self.durations[clip])

    def at(self, channels: Sequence[str], clip: Tensor, time: Tensor) -> dict[str, Tensor]:
        self.check_channels(channels)
        table, names = self._table, tuple(channels)
        lengths, looped, time = table.lengths[clip], table.looped[clip], time.double()
        rounds = torch.where(looped, (time / lengths).floor(), 0.0)
        time = torch.where(looped, time - rounds * lengths, time.clamp(min=0).minimum(lengths - 1.0))
        left = time.floor().to(torch.int64).minimum(lengths - 1)
        share = (time - left).float().unsqueeze(1)
        right = left + 1
        over = looped & (right == lengths)
        right = torch.where(over, 0, right.minimum(lengths - 1))
        stored = self._columns.needed(names)
        index = torch.cat([left, right]) + table.starts[clip].repeat(2)
        rows = self._columns.read(stored, index.unsqueeze(1))
        found = {}
        for name in stored:
            kind = self._columns.kind(name)
            first, second = rows[name].chunk(2)
            if kind == "place":
                shift = table.shifts[clip].repeat(1, first.shape[1] // 3)
                first = first + rounds.float().unsqueeze(1) * shift
                second = second + (rounds + over).float().unsqueeze(1) * shift
            found[name] = between(first, second, share, rotations=kind == "rotation")
        return self._columns.derive(names, found)

    def clip_frames(self, number: int) -> dict[str, Tensor]:
        """Stored channels [n, K] of a whole clip."""
        start = int(self._table.starts[number])
        return self._columns.block(start, start + int(self._table.lengths[number]))

    def describe(self) -> dict[str, Any]:
        step = {} if math.isnan(self.step) else {"step": self.step, "seconds": self.frames * self.step}
        return {
            "path": self.name,
            "clips": len(self.clips),
            "frames": self.frames,
            **step,
            "looped": int(self.looped.sum()),
            "channels": {name: len(components) for name, components in self.channels.items()},
            "fingerprint": self.fingerprint,
            **self._facts,
        }


@final
class Windows:
    """Windows of a set; its clips' chances are known beforehand, so that a draw is a search and a read."""

    def __init__(
        self, columns: Columns, table: ClipTable, channels: tuple[str, ...], frames: int, counts: Tensor
    ) -> None:
        self._columns = columns
        self._table = table
        self._channels = channels
        self._frames = frames
        self._counts = counts
        self._mass = (table.weights * counts).cumsum(0)
        self._offsets = torch.arange(frames)
        self._looped = bool(table.looped.any())
        sizes = [len(columns.components[name]) for name in channels]
        self._size = sum(sizes)
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self._places = [
            slice(end - size, end)
            for name, size, end in zip(channels, sizes, ends, strict=True)
            if columns.kind(name) == "place"
        ]
        stored = int((table.starts + table.lengths).max())
        self._joined = columns.joined(channels, stored) if stored * self._size * 4 <= JOINED_BUDGET else None

    @property
    def count(self) -> int:
        return int(self._counts[self._table.weights > 0].sum())

    @property
    def size(self) -> int:
        return self._size

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        clip, place = _drawn(self._mass, self._table.weights, count, rng)
        first = place.to(torch.int64).minimum(self._counts[clip] - 1)
        frame = first.unsqueeze(1) + self._offsets
        rounds = None
        if self._looped:
            # Of a clip that is not looped no window reaches the end.
            lengths = self._table.lengths[clip].unsqueeze(1)
            rounds = torch.div(frame, lengths, rounding_mode="floor")
            frame = frame - rounds * lengths
        index = self._table.starts[clip].unsqueeze(1) + frame
        if self._joined is None:
            rows = self._columns.beside(self._channels, index)
        else:
            rows = self._joined.index_select(0, index.flatten())
        rows = rows.view(count, self._frames, self._size)
        if rounds is not None:
            for columns in self._places:
                shift = self._table.shifts[clip].repeat(1, (columns.stop - columns.start) // 3)
                rows[:, :, columns] += rounds.unsqueeze(2) * shift.unsqueeze(1)
        return rows


def _drawn(mass: Tensor, weights: Tensor, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Clips [N], and how far inside each [N], from the masses (weight · size) of clips added up [C].

    One number for both: where it falls says which clip, and where in it.
    """
    total = float(mass[-1])
    number = torch.rand(count, generator=rng, dtype=torch.float64) * total
    clip = torch.searchsorted(mass, number.clamp(max=math.nextafter(total, 0.0)), right=True)
    before = torch.where(clip > 0, mass[(clip - 1).clamp(min=0)], 0.0)
    return clip, (number - before).clamp(min=0) / weights[clip]
