"""A clip as its file has it: frames at their own times, in named channels, before anything is resampled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from understudy.core.errors import DataError, near
from understudy.data.motions.rotations import continuous

Kind = Literal["number", "rotation", "place"]
"""How a channel goes from frame to frame: by straight lines; as quaternions do; or as positions in the world, which a
looped clip takes up where it left them."""
XYZ = ("x", "y", "z")
WXYZ = ("w", "x", "y", "z")
LONGEST_NAME = 100
MOST_COMPONENTS = 10_000
NORMS = 0.5, 2.0
"""Between these a quaternion is made one of norm 1: of files that were interpolated number by number it is not."""


@dataclass(frozen=True)
class Channel:
    """Numbers of every frame [n, K], one for each component."""

    values: Tensor
    components: tuple[str, ...]
    kind: Kind = "number"

    def parts(self) -> Tensor:
        """Vectors or quaternions of each body [n, B, 3 or 4]."""
        return self.values.view(len(self.values), -1, 4 if self.kind == "rotation" else 3)


@dataclass(frozen=True)
class Clip:
    """n frames. `where` is how errors name it."""

    name: str
    where: str
    times: Tensor
    """Of the frames [n], in seconds from the first, float64."""
    channels: Mapping[str, Channel]
    loops: bool = False
    """Its file says that it begins again after its last frame."""
    closing: float = 0.0
    """Seconds from the last frame to the first of the next round; 0: the last one is the first, a round later."""

    @property
    def frames(self) -> int:
        return len(self.times)

    @property
    def fps(self) -> float:
        """Frames per second, on average."""
        return (self.frames - 1) / float(self.times[-1]) if self.frames > 1 else float("nan")


def named(bodies: Sequence[str], axes: tuple[str, ...]) -> tuple[str, ...]:
    """`pelvis.x`, `pelvis.y`, …"""
    return tuple(f"{body}.{axis}" for body in bodies for axis in axes)


def near_or_all(name: str, known: Iterable[str]) -> str:
    """What was probably meant, and all that there is."""
    names = list(known)
    close = near(name, names)
    guess = f"Did you mean '{close}'? " if close else ""
    return f"{guess}There are: {', '.join(names) or 'none'}."


def checked_fps(fps: float, where: str) -> float:
    if not 0 < fps < 1e6:  # NaN is not either
        raise DataError(where, "no frames per second", got=f"{fps:g}", expected="more than 0", do="Say fps=….")
    return fps


def uniform_times(frames: int, fps: float, where: str) -> Tensor:
    return torch.arange(frames, dtype=torch.float64) / checked_fps(fps, where)


def checked_names(names: Sequence[str], what: str, where: str) -> tuple[str, ...]:
    """Names of joints or bodies: some, all different, none endless."""
    if len(names) > MOST_COMPONENTS:
        raise DataError(where, f"too many {what}", got=f"{len(names):,}", expected=f"at most {MOST_COMPONENTS:,}")
    for name in names:
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise DataError(where, f"a name of {what} that is none", got=repr(name[:60]))
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(where, f"{what} of one name", got=", ".join(repeated[:6]), expected="a name for each")
    return tuple(names)


def check_clip(clip: Clip) -> Clip:
    """Finite, times that go on, and rotations that are some: of norm 1, and by quaternions that follow each other."""
    if clip.frames < 2:
        raise DataError(clip.where, "too short to move", got=f"{clip.frames} frames", expected="at least 2")
    gaps = clip.times.diff()
    if not bool((gaps > 0).all() and gaps.isfinite().all()):
        frame = int((~(gaps > 0)).to(torch.int64).argmax()) + 1
        raise DataError(f"{clip.where}, frame {frame}", "time does not go on", got=f"{float(clip.times[frame]):g} s")
    for name, channel in clip.channels.items():
        if not bool(channel.values.isfinite().all()):
            frame, column = (~channel.values.isfinite()).nonzero()[0].tolist()
            value = float(channel.values[frame, column])
            raise DataError(
                f"{clip.where}, frame {frame}, {name}, {channel.components[column]}", "not finite", got=value
            )
    return Clip(
        clip.name,
        clip.where,
        clip.times,
        {name: _checked_rotations(name, one, clip.where) for name, one in clip.channels.items()},
        clip.loops,
        clip.closing,
    )


def _checked_rotations(name: str, channel: Channel, where: str) -> Channel:
    if channel.kind != "rotation":
        return channel
    parts = channel.parts()
    norms = parts.norm(dim=-1)
    wrong = ((norms < NORMS[0]) | (norms > NORMS[1])).nonzero()
    if len(wrong):
        frame, part = wrong[0].tolist()
        body = channel.components[4 * part].rpartition(".")[0]
        raise DataError(
            f"{where}, frame {frame}, {name}{f' of {body}' if body else ''}",
            "a quaternion that is no rotation",
            got=f"norm {float(norms[frame, part]):.4g}",
            expected="norm 1",
        )
    unit = continuous(parts / norms.unsqueeze(-1))
    return Channel(unit.reshape(channel.values.shape), channel.components, channel.kind)
