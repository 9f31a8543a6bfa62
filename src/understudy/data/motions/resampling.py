"""Clips at the control step: straight lines for numbers, slerp for rotations, finite differences for velocities.

A looped clip is a closed curve. Between its last frame and the first of the next round it is interpolated as anywhere;
where its root went in a round, the next one begins. Its period becomes a whole number of steps: time is stretched by
half a step over the whole clip at most, and velocities with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.motions.clip import WXYZ, XYZ, Channel, Clip
from understudy.data.motions.rotations import inverse, multiply, rotation_vector, slerp

VELOCITIES = {
    "joint_positions": "joint_velocities",
    "root_position": "root_linear_velocity",
    "root_rotation": "root_angular_velocity",
    "body_positions": "body_linear_velocities",
    "body_rotations": "body_angular_velocities",
}
"""The channel that says how fast another one changes."""
SAME = 1e-6
"""A share of the way between two frames below which a frame is taken as it is."""


@final
@dataclass(frozen=True)
class Resampled:
    """n frames, one step apart."""

    name: str
    channels: Mapping[str, Channel]
    loop: bool
    shift: Tensor
    """What a round adds to places in the world [3]; up and down it adds nothing."""
    stretch: float
    """Seconds of the result for each of the clip: 1, but for the period of a loop."""

    @property
    def frames(self) -> int:
        return len(next(iter(self.channels.values())).values)


@dataclass(frozen=True)
class _Curve:
    """A clip with the frame after its last, where there is one."""

    times: Tensor
    channels: Mapping[str, Channel]
    shift: Tensor
    kept: int
    """Frames of a round, or of the clip."""


def resample(clip: Clip, step: float, *, loop: bool) -> Resampled:
    """`clip` at 0, step, 2·step, …; velocities that it lacks are those of its own frames."""
    curve = (
        _closed(clip) if loop else _Curve(clip.times, clip.channels, torch.zeros(3, dtype=torch.float64), clip.frames)
    )
    channels = {**curve.channels, **_missing_velocities(curve, closed=loop)}
    span = float(curve.times[-1])
    if loop:
        count = max(1, round(span / step))
        times, stretch = torch.arange(count, dtype=torch.float64) * (span / count), count * step / span
    else:
        count = int(span / step + SAME) + 1
        times, stretch = (torch.arange(count, dtype=torch.float64) * step).clamp(max=span), 1.0
    if count < 2:
        raise DataError(clip.where, "shorter than a control step", got=f"{span:g} s", expected=f"more than {step:g} s")
    left, share = locate(curve.times, times)
    faster = dict.fromkeys(VELOCITIES.values(), 1 / stretch)
    between = {
        name: replace(one, values=interpolated(one, left, share) * faster.get(name, 1.0))
        for name, one in channels.items()
    }
    return Resampled(clip.name, between, loop, curve.shift, stretch)


def locate(knots: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """The frame before each time [m], and the share of the way to the next one [m, 1]; close to a frame it is 0."""
    left = (torch.searchsorted(knots, times, right=True) - 1).clamp(0, len(knots) - 2)
    share = ((times - knots[left]) / (knots[left + 1] - knots[left])).clamp(0, 1)
    onto_next = share > 1 - SAME
    left, share = left + onto_next, torch.where(onto_next | (share < SAME), 0.0, share)
    return left, share.unsqueeze(-1)


def interpolated(channel: Channel, left: Tensor, share: Tensor) -> Tensor:
    """Values [m, K] between frames `left` [m] and the ones after them."""
    right = (left + 1).clamp(max=len(channel.values) - 1)
    return between(channel.values[left], channel.values[right], share, rotations=channel.kind == "rotation")


def between(first: Tensor, second: Tensor, share: Tensor, *, rotations: bool) -> Tensor:
    """From `first` to `second` [m, K], a share [m, 1] of the way."""
    if not rotations:
        return first + share * (second - first)
    shape = (len(first), -1, 4)
    return slerp(first.view(shape), second.view(shape), share.unsqueeze(-1)).reshape(first.shape)


def _closed(clip: Clip) -> _Curve:
    """One round, and the frame that begins the next."""
    kept = clip.frames if clip.closing > 0 else clip.frames - 1
    if kept < 2:
        raise DataError(clip.where, "too short to be looped", got=f"{clip.frames} frames")
    shift = _round_shift(clip)
    period = float(clip.times[-1]) + clip.closing
    times = torch.cat([clip.times[:kept], clip.times.new_tensor([period])])
    channels = {}
    for name, one in clip.channels.items():
        first = one.values[:1] + shift.repeat(one.values.shape[1] // 3) if one.kind == "place" else one.values[:1]
        channels[name] = replace(one, values=torch.cat([one.values[:kept], first]))
    return _Curve(times, channels, shift, kept)


def _round_shift(clip: Clip) -> Tensor:
    """How far the root comes in a round [3], over the ground.

    From the last frame to the first of the next round it goes on at the mean of both frames' velocities.
    """
    shift = torch.zeros(3, dtype=torch.float64)
    place = clip.channels.get("root_position")
    if place is not None:
        values, times = place.values, clip.times
        leaving = (values[-1] - values[-2]) / (times[-1] - times[-2])
        arriving = (values[1] - values[0]) / (times[1] - times[0])
        shift[:2] = (values[-1] - values[0] + clip.closing * (leaving + arriving) / 2)[:2]
    return shift


def _missing_velocities(curve: _Curve, *, closed: bool) -> dict[str, Channel]:
    found = {}
    for name, velocity in VELOCITIES.items():
        if name in curve.channels and velocity not in curve.channels:
            channel = curve.channels[name]
            values = _round_about(channel, curve) if closed else differences(channel, curve.times)
            found[velocity] = Channel(values, velocity_components(channel))
    return found


def velocity_components(channel: Channel) -> tuple[str, ...]:
    """Of a rotation, the axes it turns about."""
    if channel.kind != "rotation":
        return channel.components
    if channel.components == WXYZ:
        return XYZ
    return tuple(name for name in channel.components if not name.endswith(".w"))


def _round_about(channel: Channel, curve: _Curve) -> Tensor:
    """Velocities of a round and of the frame after it, none of which is at an end."""
    times, values = curve.times, channel.values
    back = curve.shift.repeat(values.shape[1] // 3) if channel.kind == "place" else torch.zeros(1)
    before = values[curve.kept - 1 : curve.kept] - back
    wider = torch.cat([(times[-2] - times[-1]).view(1), times, times[-1:] + times[1]])
    padded = replace(channel, values=torch.cat([before, values, values[1:2] + back]))
    return differences(padded, wider)[1:-1]


def differences(channel: Channel, times: Tensor) -> Tensor:
    """How fast a channel changes at each frame: between the frames around it; at the ends from the one beside it.

    Of rotations the angular velocity in the world [n, 3 for each], from one rotation to the other.
    """
    if channel.kind != "rotation":
        return torch.gradient(channel.values, spacing=(times,), dim=0)[0]
    parts = channel.parts()
    ahead = torch.cat([parts[1:], parts[-1:]])
    behind = torch.cat([parts[:1], parts[:-1]])
    spans = torch.cat([times[1:], times[-1:]]) - torch.cat([times[:1], times[:-1]])
    turns = rotation_vector(multiply(ahead, inverse(behind)))
    return (turns / spans.view(-1, 1, 1)).reshape(len(times), -1)
