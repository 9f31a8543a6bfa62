"""Motions checked: every clip as its file has it, and then as it would be used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, final

from understudy.core.errors import ConfigError, UnderstudyError
from understudy.data.motions.arranging import chosen_frames, is_looped, w_first, without_velocities, z_up
from understudy.data.motions.clip import Clip, near_or_all
from understudy.data.motions.files import is_recorded, read_clip
from understudy.data.motions.loading import load_motions, used_files
from understudy.data.motions.motion_set import MotionSet
from understudy.data.motions.packed import is_packed
from understudy.data.motions.settings import MotionSettings
from understudy.tools.dataset.findings import LEVELS, Finding
from understudy.tools.motions.clip_findings import Case, clip_findings


@final
@dataclass(frozen=True)
class MotionReport:
    """What was found; errors first."""

    path: str
    findings: list[Finding]
    clips: int = 0
    frames: int = 0

    @property
    def passed(self) -> bool:
        return not self.count("error")

    def count(self, level: str) -> int:
        return sum(finding.level == level for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "passed": self.passed,
            **{f"{level}s": self.count(level) for level in LEVELS},
            "clips": self.clips,
            "frames": self.frames,
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass
class _Tally:
    clips: int = 0
    frames: int = 0
    joints: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def check_motions(
    settings: MotionSettings, *, window: int = 2, limits: Mapping[str, tuple[float, float]] | None = None
) -> MotionReport:
    """Every clip by itself, and all of them as windows of `window` frames would be drawn from them.

    `limits` of joints, by pattern, as (low, high).
    """
    path, tally = Path(settings.path), _Tally()
    if not is_packed(path) and not is_recorded(path):
        tally.findings += _files(path, settings, limits or {}, tally)
        for pattern in limits or {}:
            if tally.joints and not any(fnmatchcase(name, pattern) for name in tally.joints):
                raise ConfigError(
                    f"limit of '{pattern}'", "matches no joint", do=near_or_all(pattern, sorted(tally.joints))
                )
    if not any(finding.level == "error" for finding in tally.findings):
        tally.findings += _used(settings, window, tally)
    ordered = sorted(tally.findings, key=lambda finding: LEVELS.index(finding.level))
    return MotionReport(settings.path, ordered, tally.clips, tally.frames)


def _files(
    path: Path, settings: MotionSettings, limits: Mapping[str, tuple[float, float]], tally: _Tally
) -> Iterator[Finding]:
    for file in used_files(path, settings):
        try:
            clip = read_clip(file, settings)
        except ConfigError:
            raise
        except UnderstudyError as error:
            yield Finding("error", "unreadable", str(error))
            continue
        tally.clips += 1
        tally.frames += clip.frames
        joints = clip.channels.get("joint_positions")
        tally.joints |= set() if joints is None else set(joints.components)
        if clip.frames < 2:
            yield Finding("error", "too-short", f"{clip.where}: too short to move: got {clip.frames} frames.")
            continue
        yield from clip_findings(_case(chosen_frames(clip, settings), settings, limits))


def _case(clip: Clip, settings: MotionSettings, limits: Mapping[str, tuple[float, float]]) -> Case:
    if settings.velocities == "differences":
        clip = without_velocities(clip)
    read = z_up(w_first(clip, settings.quaternions), settings.up)
    return Case(read, is_looped(clip, settings), settings.quaternions, limits)


def _used(settings: MotionSettings, window: int, tally: _Tally) -> list[Finding]:
    """Whatever a run would say; without a control step, clips have been looked at, and nothing is resampled."""
    path = Path(settings.path)
    if settings.step is None and not is_packed(path) and not is_recorded(path):
        more = "With --step SECONDS they are resampled, and joints, mirrors and windows are checked too."
        return [Finding("note", "not-resampled", "Clips were checked as they are in their files.", more)]
    try:
        motions: MotionSet = load_motions(settings)
        tally.clips, tally.frames = len(motions.clips), motions.frames
        motions.windows(list(motions.channels)[:1], window)
    except ConfigError:
        raise
    except UnderstudyError as error:
        return [Finding("error", "refused", str(error))]
    return []
