"""Joints of a clip as the robot has them: its names, its order, its signs, its zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import final

import torch
from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.data.motions.clip import XYZ, Channel, near_or_all
from understudy.data.motions.rotations import rotation_vector
from understudy.data.motions.settings import MotionSettings

BALL = "_rotation"
"""What the channel of a ball joint is called after the joint."""


@final
@dataclass(frozen=True)
class JointMap:
    """For each joint of the robot: which of the clip's it is, its sign, and its angle in the default pose."""

    names: tuple[str, ...]
    sources: tuple[str, ...]
    signs: tuple[float, ...]
    zeros: tuple[float, ...]

    def gather(self, columns: Mapping[str, Tensor], *, zeroed: bool) -> Tensor:
        """[n, J] from columns [n] by name; angles are `zeroed`, velocities are not."""
        signs, zeros = (torch.tensor(numbers, dtype=torch.float64) for numbers in (self.signs, self.zeros))
        some = torch.stack([columns[source] for source in self.sources], 1) * signs
        return some - zeros if zeroed else some


def joint_map(settings: MotionSettings, known: Sequence[str], balls: Sequence[str], where: str) -> JointMap:
    """What the settings say of a clip's joints; `balls` are the names that ask for components of ball joints."""
    asked = settings.joints or tuple(known)
    pairs = asked.items() if isinstance(asked, dict) else ((name.removeprefix("-"), name) for name in asked)
    names, sources, signs = [], [], []
    for name, told in pairs:
        source = told.removeprefix("-")
        if source not in known and source not in balls:
            raise DataError(
                f"{where}, joint '{source}'", "no such joint in the clip", do=near_or_all(source, [*known, *balls])
            )
        names.append(name)
        sources.append(source)
        signs.append(-1.0 if told.startswith("-") else 1.0)
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError("motions.joints", "a joint twice", got=", ".join(repeated))
    return JointMap(tuple(names), tuple(sources), tuple(signs), _zeros(settings.joint_offsets, names))


def _zeros(offsets: Mapping[str, float], names: Sequence[str]) -> tuple[float, ...]:
    found = dict.fromkeys(names, 0.0)
    for pattern, angle in offsets.items():
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise ConfigError(f"motions.joint_offsets.{pattern}", "matches no joint", do=near_or_all(pattern, names))
        found |= dict.fromkeys(matching, angle)
    return tuple(found[name] for name in names)


def mapped_joints(
    channels: Mapping[str, Channel], settings: MotionSettings, step: float, where: str, *, loop: bool
) -> dict[str, Channel]:
    """The clip's channels, those of joints as the robot has them."""
    positions, velocities = channels.get("joint_positions"), channels.get("joint_velocities")
    known = () if positions is None else positions.components
    balls = ball_components(channels)
    if not known and not settings.joints:
        return dict(channels)
    plan = joint_map(settings, known, balls, where)
    angles, speeds = _columns(positions), _columns(velocities)
    for name in {source for source in plan.sources if source in balls}:
        joint, _, axis = name.rpartition(".")
        values = rotation_vector(channels[joint + BALL].values)[:, XYZ.index(axis)]
        angles[name], speeds[name] = values, rate(values, step, loop=loop)
    return {
        **channels,
        "joint_positions": Channel(plan.gather(angles, zeroed=True), plan.names),
        "joint_velocities": Channel(plan.gather(speeds, zeroed=False), plan.names),
    }


def ball_components(channels: Mapping[str, Channel]) -> tuple[str, ...]:
    """`chest.x` and so on, of every ball joint."""
    joints = [name.removesuffix(BALL) for name in channels if name.endswith(BALL) and name != "root_rotation"]
    return tuple(f"{joint}.{axis}" for joint in joints for axis in XYZ)


def _columns(channel: Channel | None) -> dict[str, Tensor]:
    return {} if channel is None else dict(zip(channel.components, channel.values.unbind(1), strict=True))


def rate(values: Tensor, step: float, *, loop: bool) -> Tensor:
    """How fast frames [n], a step apart, change."""
    if not loop:
        return torch.gradient(values, spacing=step)[0]
    return (values.roll(-1) - values.roll(1)) / (2 * step)
