"""Clips in CSV files: a header with the names of joints, then a row of joint positions per frame.

Further columns are known by their names: `time` in seconds, `frame` (which says nothing), `root_x`, `root_y`, `root_z`
and `root_qw`, `root_qx`, `root_qy`, `root_qz` (or `root_pos_x`, `root_rot_w`, …), and `<joint>_vel`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.formats.column_map import ColumnPlan, Part
from understudy.data.formats.columns import NAMES
from understudy.data.formats.csv_file import read_csv
from understudy.data.motions.clip import WXYZ, XYZ, Channel, Clip, checked_names, uniform_times
from understudy.data.motions.settings import MotionSettings

TIME = ("time", "t", "time_s", "seconds", "timestamp")
IGNORED = ("frame", "index", "column 0")
POSITION = re.compile(r"(?:root|base)[_.]?(?:pos|position|trans|translation)?[_.]?([xyz])", re.IGNORECASE)
ROTATION = re.compile(r"(?:root|base)[_.]?(?:q|quat|quaternion|rot|rotation)[_.]?([wxyz])", re.IGNORECASE)
VELOCITY = re.compile(r"(.+?)[_.](?:vel|velocity)")


@dataclass(frozen=True)
class _Header:
    """Which column is what."""

    joints: tuple[str, ...]
    velocities: Mapping[str, str]
    """By joint, the column of its velocity."""
    position: Mapping[str, str]
    rotation: Mapping[str, str]
    """By axis, the columns of the root."""
    time: str


def is_motion_csv(path: Path) -> bool:
    """No column is an action: it is nobody's experience."""
    names: list[str] = []

    def note(header: list[str]) -> ColumnPlan:
        names.extend(header)
        return ColumnPlan({}, ())

    read_csv(path, note, f"clip '{path.name}'")
    return not any(re.split(r"[_.\[/]", name)[0].lower() in NAMES["actions"] for name in names)


def read_csv_clip(path: Path, settings: MotionSettings) -> Clip:
    where = f"clip '{path.name}'"
    found: list[_Header] = []

    def choose(names: list[str]) -> ColumnPlan:
        found.append(_header(checked_names(names, "columns", where), where))
        kept = [name for name in names if name.lower() not in IGNORED]
        return ColumnPlan({"observations": tuple(map(Part, kept))}, ())

    _, columns, _ = read_csv(path, choose, where)
    values = {name: torch.from_numpy(np.array(column[:], np.float64)) for name, column in columns.items()}
    header = found[0]
    channels = {"joint_positions": Channel(_beside(values, header.joints), header.joints)} if header.joints else {}
    if header.velocities:
        speeds = [header.velocities[joint] for joint in header.joints]
        channels["joint_velocities"] = Channel(_beside(values, speeds), header.joints)
    if header.position:
        channels["root_position"] = Channel(_beside(values, [header.position[axis] for axis in XYZ]), XYZ, "place")
    if header.rotation:
        # By name, whatever order `quaternions` says of unnamed numbers: it is turned back there.
        axes = WXYZ if settings.quaternions == "wxyz" else (*XYZ, "w")
        rotation = _beside(values, [header.rotation[axis] for axis in axes])
        channels["root_rotation"] = Channel(rotation, WXYZ, "rotation")
    times = _times(values, header.time, settings, where)
    closing = float(times.diff().median()) if len(times) > 1 else 0.0
    return Clip(path.stem, where, times, channels, closing=closing)


def _header(names: Sequence[str], where: str) -> _Header:
    position, rotation, velocities = {}, {}, {}
    time, joints = "", []
    for name in names:
        if name.lower() in TIME and not time:
            time = name
        elif match := ROTATION.fullmatch(name):
            rotation[match[1].lower()] = name
        elif match := POSITION.fullmatch(name):
            position[match[1].lower()] = name
        elif (match := VELOCITY.fullmatch(name)) and match[1] in names:
            velocities[match[1]] = name
        elif name.lower() not in IGNORED:
            joints.append(name)
    for what, axes, some in (("position", XYZ, position), ("rotation", WXYZ, rotation)):
        if some and (lacking := sorted(set(axes) - some.keys())):
            raise DataError(where, f"a root {what} without {', '.join(lacking)}", got=", ".join(some.values()))
    if velocities and (lacking := [joint for joint in joints if joint not in velocities]):
        raise DataError(where, "some joints have a velocity and some have none", got=f"none of {lacking[0]}")
    if not joints and not position:
        raise DataError(where, "no joints and no root", got=", ".join(names)[:100])
    return _Header(tuple(joints), velocities, position, rotation, time)


def _beside(values: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    return torch.stack([values[name] for name in names], 1)


def _times(values: Mapping[str, Tensor], time: str, settings: MotionSettings, where: str) -> Tensor:
    frames = len(next(iter(values.values())))
    if settings.fps is not None:
        return uniform_times(frames, settings.fps, where)
    if not time:
        raise DataError(where, "says nothing of frames per second", do="Say fps=…, or add a column `time`.")
    return values[time] - values[time][0]
