"""From a clip as its file has it to frames of the robot: cut, turned upright, resampled, mirrored, renamed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal

import torch

from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.data.motions.clip import Channel, Clip, check_clip
from understudy.data.motions.joint_map import mapped_joints
from understudy.data.motions.mirroring import mirrored
from understudy.data.motions.plausibility import check_fps
from understudy.data.motions.resampling import VELOCITIES, Resampled, resample
from understudy.data.motions.settings import ClipSettings, MirrorSettings, MotionSettings

UPRIGHT = ((0, 2, 1), (1.0, -1.0, 1.0))
"""(x, y, z) → (x, −z, y)."""


def arranged(clip: Clip, settings: MotionSettings, step: float) -> list[Resampled]:
    """The clip at the control step, and its mirror image if it is wanted."""
    said = clip_settings(clip.name, settings)
    clip = oriented(chosen_frames(clip, settings), settings)
    if settings.fps is None:
        check_fps(clip)
    both = [resample(clip, step, loop=is_looped(clip, settings))]
    if settings.mirror is not False if said.mirror is None else said.mirror:
        rules = settings.mirror if isinstance(settings.mirror, MirrorSettings) else MirrorSettings()
        both.append(mirrored(both[0], rules, clip.where))
    return [_for_the_robot(one, settings, step, clip.where) for one in both]


def _for_the_robot(clip: Resampled, settings: MotionSettings, step: float, where: str) -> Resampled:
    """With its joints; in single precision, for there may be many clips."""
    channels = mapped_joints(clip.channels, settings, step, where, loop=clip.loop)
    single = {name: replace(channel, values=channel.values.float()) for name, channel in channels.items()}
    return replace(clip, channels=single)


def is_looped(clip: Clip, settings: MotionSettings) -> bool:
    """As is said of the clip, or of all, or by its file."""
    told = clip_settings(clip.name, settings).loop, settings.loop
    return next((loop for loop in told if loop is not None), clip.loops)


def oriented(clip: Clip, settings: MotionSettings) -> Clip:
    """Checked, with quaternions w first and z up, and the velocities that are wanted."""
    if settings.velocities == "differences":
        clip = without_velocities(clip)
    return z_up(check_clip(w_first(clip, settings.quaternions)), settings.up)


def without_velocities(clip: Clip) -> Clip:
    kept = {name: channel for name, channel in clip.channels.items() if name not in VELOCITIES.values()}
    return replace(clip, channels=kept)


def w_first(clip: Clip, order: Literal["wxyz", "xyzw"]) -> Clip:
    """The same, of a file whose quaternions have this order."""
    if order == "wxyz":
        return clip
    return replace(clip, channels={name: _with_w_first(channel) for name, channel in clip.channels.items()})


def z_up(clip: Clip, up: Literal["z", "y"]) -> Clip:
    """The same, of a file in which this axis points up."""
    if up == "z":
        return clip
    return replace(clip, channels={name: _upright(name, channel) for name, channel in clip.channels.items()})


def _with_w_first(channel: Channel) -> Channel:
    if channel.kind != "rotation":
        return channel
    return replace(channel, values=channel.parts().roll(1, -1).reshape(channel.values.shape))


def _upright(name: str, channel: Channel) -> Channel:
    """Turned about x by 90°, the world and every frame in it alike."""
    if name.startswith("joint_"):
        return channel
    order, signs = UPRIGHT
    parts, turned = channel.parts(), torch.tensor(signs, dtype=torch.float64)
    vector = parts[..., -3:][..., list(order)] * turned
    values = torch.cat([parts[..., :1], vector], -1) if channel.kind == "rotation" else vector
    return replace(channel, values=values.reshape(channel.values.shape))


def chosen_frames(clip: Clip, settings: MotionSettings) -> Clip:
    """The frames that the settings leave of a clip."""
    said = clip_settings(clip.name, settings)
    return cut(strided(clip, said.stride or settings.stride), said.start, said.end)


def strided(clip: Clip, stride: int) -> Clip:
    """Every n-th frame of it."""
    if stride == 1:
        return clip
    times = clip.times[::stride].contiguous()
    channels = {
        name: replace(channel, values=channel.values[::stride].contiguous()) for name, channel in clip.channels.items()
    }
    closing = clip.closing + float(clip.times[-1] - times[-1]) if clip.frames else 0.0
    return replace(clip, times=times, channels=channels, closing=closing)


def cut(clip: Clip, start: float, end: float | None) -> Clip:
    """Its frames between two times."""
    if start == 0 and end is None:
        return clip
    last = float(clip.times[-1]) if clip.frames else 0.0
    kept = (clip.times >= start - 1e-9) & (clip.times <= (last if end is None else end) + 1e-9)
    if int(kept.sum()) < 2:
        got = f"{start:g} to {last if end is None else end:g} s"
        raise DataError(clip.where, "nothing is left of it between start and end", got=got, expected=f"0 to {last:g} s")
    times = clip.times[kept]
    channels = {name: replace(channel, values=channel.values[kept]) for name, channel in clip.channels.items()}
    closing = clip.closing if clip.closing > 0 else float(times.diff().median())
    return replace(clip, times=times - times[0], channels=channels, closing=closing)


def clip_settings(name: str, settings: MotionSettings) -> ClipSettings:
    """What is said of a clip: of several patterns that match, each says what it says, the later the last word."""
    said: dict[str, object] = {}
    for pattern, one in settings.clips.items():
        if fnmatchcase(name, pattern):
            said |= {field: one.__dict__[field] for field in one.model_fields_set}
    return ClipSettings.model_validate(said)


def check_patterns(settings: MotionSettings, names: Iterable[str]) -> None:
    """Every pattern is of some clip."""
    names = list(names)
    for pattern in settings.clips:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"motions.clips.{pattern}", "matches no clip", do=did_you_mean(pattern, names))


def check_weights(weights: Mapping[str, float] | Sequence[float]) -> None:
    values = weights.values() if isinstance(weights, Mapping) else weights
    if not any(value > 0 for value in values):
        raise ConfigError("motions.clips", "all weights are 0: nothing would be drawn", expected="some above 0")
