"""A survey of motions: how long clips are, how fast, where their joints go, and whether they could be looped."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.spec import Segments
from understudy.data.motions.arranging import arranged, chosen_frames, is_looped, oriented
from understudy.data.motions.channels import derivable
from understudy.data.motions.files import is_recorded, read_clip
from understudy.data.motions.joint_map import mapped_joints
from understudy.data.motions.loading import NO_SEGMENTS, load_motions, used_files
from understudy.data.motions.motion_set import MotionSet
from understudy.data.motions.packed import is_packed
from understudy.data.motions.resampling import resample
from understudy.data.motions.settings import MotionSettings


@final
@dataclass(frozen=True)
class ClipFacts:
    """One clip. What it does not have is absent."""

    name: str
    frames: int
    fps: float
    """NaN where nobody said how long a step is."""
    seconds: float
    loop: bool
    speed: float | None = None
    """Of the root over the ground, on average."""
    height: tuple[float, float] | None = None
    """Of the root, least and greatest."""
    seam: float | None = None
    """How far the joint that is farthest from it is from closing: last frame to first, in radians."""


@final
@dataclass(frozen=True)
class RangeFacts:
    """A joint, or a channel as a whole."""

    low: float
    high: float
    peak_speed: float | None = None
    """Of a joint, per second."""


@final
@dataclass(frozen=True)
class MotionSurvey:
    """Everything `understudy motion inspect` shows."""

    path: str
    kind: str
    clips: list[ClipFacts]
    channels: dict[str, tuple[str, ...]]
    """Those of the first clip."""
    ranges: dict[str, RangeFacts]
    """By channel."""
    joints: dict[str, RangeFacts]
    sample: dict[str, Tensor]
    """Frames of the first clip, to be drawn."""

    @property
    def frames(self) -> int:
        return sum(clip.frames for clip in self.clips)

    @property
    def seconds(self) -> float:
        return sum(clip.seconds for clip in self.clips)

    def to_json(self) -> dict[str, Any]:
        known = math.isfinite(self.seconds)
        return {
            "path": self.path,
            "kind": self.kind,
            "frames": self.frames,
            "seconds": self.seconds if known else None,
            "clips": [{**asdict(clip), **({} if known else {"fps": None, "seconds": None})} for clip in self.clips],
            "channels": {name: list(components) for name, components in self.channels.items()},
            "ranges": {name: asdict(facts) for name, facts in self.ranges.items()},
            "joints": {name: asdict(facts) for name, facts in self.joints.items()},
        }


@dataclass(frozen=True)
class _Frames:
    """A clip's frames, one `step` apart."""

    name: str
    channels: Mapping[str, Tensor]
    components: Mapping[str, tuple[str, ...]]
    step: float
    loop: bool


def survey_motions(settings: MotionSettings, segments: Segments = NO_SEGMENTS) -> MotionSurvey:
    """One pass over all clips: at the control step if one is said, otherwise at their own frames."""
    path = Path(settings.path)
    if is_packed(path) or is_recorded(path):
        motions = load_motions(settings, segments)
        return _surveyed(settings.path, "packed" if is_packed(path) else "recorded dataset", _of_set(motions))
    return _surveyed(settings.path, "clips", _of_files(path, settings))


def _of_files(path: Path, settings: MotionSettings) -> Iterator[_Frames]:
    for file in used_files(path, settings):
        clip = read_clip(file, settings)
        if settings.step is not None:
            for one in arranged(clip, settings, settings.step):
                values = {name: channel.values for name, channel in one.channels.items()}
                components = {name: channel.components for name, channel in one.channels.items()}
                yield _Frames(one.name, values, components, settings.step, one.loop)
            continue
        clip = oriented(chosen_frames(clip, settings), settings)
        step = float(clip.times.diff().median())
        frames = resample(clip, step, loop=False)
        channels = mapped_joints(frames.channels, settings, step, clip.where, loop=False)
        yield _Frames(
            clip.name,
            {name: channel.values for name, channel in channels.items()},
            {name: channel.components for name, channel in channels.items()},
            step,
            is_looped(clip, settings),
        )


def _of_set(motions: MotionSet) -> Iterator[_Frames]:
    for number, name in enumerate(motions.clips):
        yield _Frames(name, motions.clip_frames(number), motions.channels, motions.step, bool(motions.looped[number]))


def _surveyed(path: str, kind: str, clips: Iterator[_Frames]) -> MotionSurvey:
    facts: list[ClipFacts] = []
    channels: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, RangeFacts] = {}
    joints: dict[str, RangeFacts] = {}
    sample: dict[str, Tensor] = {}
    for clip in clips:
        facts.append(_clip_facts(clip))
        for name, values in clip.channels.items():
            ranges[name] = _wider(ranges.get(name), RangeFacts(float(values.min()), float(values.max())))
        for name, joint in _joints(clip).items():
            joints[name] = _wider(joints.get(name), joint)
        if not channels:
            channels = {**clip.components, **derivable(clip.components)}
            sample = {"step": torch.tensor(clip.step), **clip.channels}
    return MotionSurvey(path, kind, facts, channels, ranges, joints, sample)


def _clip_facts(clip: _Frames) -> ClipFacts:
    frames = len(next(iter(clip.channels.values())))
    facts = ClipFacts(clip.name, frames, round(1 / clip.step, 6), round(frames * clip.step, 6), clip.loop)
    if "root_linear_velocity" in clip.channels:
        facts = replace(facts, speed=float(clip.channels["root_linear_velocity"][:, :2].norm(dim=1).mean()))
    if "root_position" in clip.channels:
        height = clip.channels["root_position"][:, 2]
        facts = replace(facts, height=(float(height.min()), float(height.max())))
    if "joint_positions" in clip.channels:
        joints = clip.channels["joint_positions"]
        facts = replace(facts, seam=float((joints[-1] - joints[0]).abs().max()))
    return facts


def _joints(clip: _Frames) -> dict[str, RangeFacts]:
    if "joint_positions" not in clip.channels:
        return {}
    angles, speeds = clip.channels["joint_positions"], clip.channels.get("joint_velocities")
    found = {}
    for number, name in enumerate(clip.components["joint_positions"]):
        peak = None if speeds is None else float(speeds[:, number].abs().max())
        found[name] = RangeFacts(float(angles[:, number].min()), float(angles[:, number].max()), peak)
    return found


def _wider(first: RangeFacts | None, second: RangeFacts) -> RangeFacts:
    if first is None:
        return second
    peaks = [one.peak_speed for one in (first, second) if one.peak_speed is not None]
    return RangeFacts(min(first.low, second.low), max(first.high, second.high), max(peaks, default=None))
