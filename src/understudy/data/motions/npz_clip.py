"""Clips in .npz files: joint and body states by name, frames per second, names of joints and bodies.

Two vocabularies are known: `dof_positions`, `body_rotations` … with `dof_names` and `body_names`, and `joint_pos`,
`body_quat_w` …, which many trackers write. The root is a body, unless the file has it by itself.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.formats.npz import Member, npz_members
from understudy.data.motions.clip import (
    LONGEST_NAME,
    WXYZ,
    XYZ,
    Channel,
    Clip,
    Kind,
    checked_names,
    named,
    near_or_all,
    uniform_times,
)
from understudy.data.motions.settings import MotionSettings

NAMES: dict[str, tuple[str, ...]] = {
    "joint_positions": ("dof_positions", "joint_positions", "joint_pos", "dof_pos"),
    "joint_velocities": ("dof_velocities", "joint_velocities", "joint_vel", "dof_vel"),
    "root_position": ("root_position", "root_positions", "root_pos", "root_trans"),
    "root_rotation": ("root_rotation", "root_rotations", "root_rot", "root_quat"),
    "root_linear_velocity": ("root_linear_velocity", "root_linear_velocities", "root_lin_vel"),
    "root_angular_velocity": ("root_angular_velocity", "root_angular_velocities", "root_ang_vel"),
    "body_positions": ("body_positions", "body_pos_w", "body_pos"),
    "body_rotations": ("body_rotations", "body_quat_w", "body_quat"),
    "body_linear_velocities": ("body_linear_velocities", "body_lin_vel_w", "body_lin_vel"),
    "body_angular_velocities": ("body_angular_velocities", "body_ang_vel_w", "body_ang_vel"),
}
"""What each channel is called in files."""
KINDS: dict[str, Kind] = {
    "root_position": "place",
    "root_rotation": "rotation",
    "body_positions": "place",
    "body_rotations": "rotation",
}
ROOT = {
    "body_positions": "root_position",
    "body_rotations": "root_rotation",
    "body_linear_velocities": "root_linear_velocity",
    "body_angular_velocities": "root_angular_velocity",
}
JOINT_NAMES, BODY_NAMES = ("dof_names", "joint_names"), ("body_names", "link_names")


def is_motion_npz(names: Iterable[str]) -> bool:
    known = {name for several in NAMES.values() for name in several}
    return any(name in known for name in names)


def read_npz_clip(path: Path, settings: MotionSettings) -> Clip:
    """The clip in a file; its arrays are believed once their shapes fit each other."""
    where = f"clip '{path.name}'"
    members = npz_members(path, where)
    found = {channel: members[name] for channel, several in NAMES.items() for name in several if name in members}
    if not found:
        expected = ", ".join(several[0] for several in NAMES.values())
        raise DataError(where, "holds no motion", got=", ".join(list(members)[:6]), expected=f"some of {expected}")
    frames = _frames(found, where)
    fps = settings.fps if settings.fps is not None else _fps(members, where)
    times = uniform_times(frames, fps, where)
    joints = _joint_names(members, found, where)
    bodies = _body_names(members, found, where)
    channels = {
        name: _channel(name, member, joints if name.startswith("joint") else bodies, where)
        for name, member in found.items()
    }
    return Clip(path.stem, where, times, _with_root(channels, bodies, settings.root, where), closing=1 / fps)


def _frames(found: Mapping[str, Member], where: str) -> int:
    frames = {name: (*member.shape, 0)[0] for name, member in found.items()}
    if len(set(frames.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in frames.items())
        raise DataError(where, "arrays of different numbers of frames", got=told)
    return next(iter(frames.values()))


def _fps(members: Mapping[str, Member], where: str) -> float:
    member = members.get("fps")
    if member is None:
        raise DataError(where, "says nothing of frames per second", do="Say fps=….")
    if int(np.prod(member.shape)) != 1 or member.dtype.kind not in "fiu":
        raise DataError(f"{where}, fps", "not a number", got=f"{member.dtype} {list(member.shape)}")
    return float(member.values.reshape(()))


def _told_names(members: Mapping[str, Member], words: tuple[str, ...], where: str) -> tuple[str, ...]:
    for word in words:
        if (member := members.get(word)) is None:
            continue
        if member.dtype.kind not in "US" or len(member.shape) != 1 or member.dtype.itemsize > 4 * LONGEST_NAME:
            raise DataError(f"{where}, {word}", "not a list of names", got=f"{member.dtype} {list(member.shape)}")
        names = [one.decode("latin1") if isinstance(one, bytes) else str(one) for one in member.values.tolist()]
        return checked_names(names, "joints" if words is JOINT_NAMES else "bodies", where)
    return ()


def _joint_names(members: Mapping[str, Member], found: Mapping[str, Member], where: str) -> tuple[str, ...]:
    """As told; or numbered, where the file has joints without names."""
    told = _told_names(members, JOINT_NAMES, where)
    first = next((member for name, member in found.items() if name.startswith("joint")), None)
    if told or first is None or len(first.shape) != 2:
        return told
    return checked_names([f"joint_{number}" for number in range(first.shape[1])], "joints", where)


def _body_names(members: Mapping[str, Member], found: Mapping[str, Member], where: str) -> tuple[str, ...]:
    told = _told_names(members, BODY_NAMES, where)
    first = next((member for name, member in found.items() if name.startswith("body")), None)
    if told or first is None or len(first.shape) != 3:
        return told
    return checked_names([f"body_{number}" for number in range(first.shape[1])], "bodies", where)


def _channel(name: str, member: Member, names: tuple[str, ...], where: str) -> Channel:
    kind = KINDS.get(name, "number")
    axes = WXYZ if kind == "rotation" else XYZ
    shape: tuple[int, ...] = (len(names),) if name.startswith("joint") else (len(axes),)
    components = names if name.startswith("joint") else axes
    if name.startswith("body"):
        shape, components = (len(names), len(axes)), named(names, axes)
    if member.shape[1:] != shape or member.dtype.kind not in "fiu":
        raise DataError(
            f"{where}, {name}",
            "wrong shape",
            got=f"{member.dtype} {list(member.shape)}",
            expected=f"numbers [frames, {', '.join(map(str, shape))}]",
        )
    values = torch.from_numpy(np.ascontiguousarray(member.values, np.float64))
    return Channel(values.view(len(values), -1), components, kind)


def _with_root(channels: dict[str, Channel], bodies: tuple[str, ...], root: str, where: str) -> dict[str, Channel]:
    """The root's own channels, of the body that is the root."""
    if not bodies:
        return channels
    if root and root not in bodies:
        raise DataError(f"{where}, body '{root}'", "no such body to be the root", do=near_or_all(root, bodies))
    number = bodies.index(root) if root else 0
    own = {
        ROOT[name]: Channel(_of_body(channel, number), WXYZ if channel.kind == "rotation" else XYZ, channel.kind)
        for name, channel in channels.items()
        if name in ROOT and (root or ROOT[name] not in channels)
    }
    return {**channels, **own}


def _of_body(channel: Channel, number: int) -> Tensor:
    return channel.parts()[:, number].contiguous()
