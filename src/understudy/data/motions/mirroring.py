"""The mirror image of a clip: left and right change places, and what points sideways turns round.

The mirror stands upright along x. A position or velocity (x, y, z) becomes (x, −y, z); what turns about an axis, an
angular velocity or the vector of a quaternion, becomes (−x, y, −z).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.motions.clip import Channel
from understudy.data.motions.joint_map import BALL
from understudy.data.motions.resampling import Resampled
from understudy.data.motions.settings import MirrorSettings

SUFFIX = " (mirrored)"
WORD = re.compile(r"([_\-.])")
VECTOR, TURN, QUATERNION = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0), (1.0, -1.0, 1.0, -1.0)
TURNS = ("root_angular_velocity", "body_angular_velocities")


def mirrored(clip: Resampled, settings: MirrorSettings, where: str) -> Resampled:
    """What a mirror beside the clip would show, under a name of its own."""
    channels: dict[str, Channel] = {}
    for name, channel in clip.channels.items():
        if name.startswith("joint_"):
            channels[name] = _mirrored_joints(channel, settings, where)
        elif name.startswith("body_"):
            channels[name] = _mirrored_bodies(name, channel, settings, where)
        elif name.endswith(BALL) and name != "root_rotation":
            other = _partner(name.removesuffix(BALL), settings.swap) + BALL
            if other not in clip.channels:
                raise _without_partner(name.removesuffix(BALL), other.removesuffix(BALL), "joint", where)
            channels[name] = replace(channel, values=clip.channels[other].values * _signs(QUATERNION))
        else:
            channels[name] = replace(channel, values=channel.values * _signs(_own(name, channel)))
    return replace(clip, name=clip.name + SUFFIX, channels=channels, shift=clip.shift * _signs(VECTOR))


def _own(name: str, channel: Channel) -> tuple[float, ...]:
    if channel.kind == "rotation":
        return QUATERNION
    return TURN if name in TURNS else VECTOR


def _signs(signs: tuple[float, ...]) -> Tensor:
    return torch.tensor(signs, dtype=torch.float64)


def _mirrored_joints(channel: Channel, settings: MirrorSettings, where: str) -> Channel:
    order = _order(channel.components, settings.swap, "joint", where)
    turned = [any(fnmatchcase(name, pattern) for pattern in settings.turn) for name in channel.components]
    signs = torch.tensor([-1.0 if turn else 1.0 for turn in turned], dtype=torch.float64)
    return replace(channel, values=channel.values[:, order] * signs)


def _mirrored_bodies(name: str, channel: Channel, settings: MirrorSettings, where: str) -> Channel:
    parts = channel.parts()
    size = parts.shape[-1]
    bodies = [component.rpartition(".")[0] for component in channel.components[::size]]
    order = _order(bodies, settings.swap, "body", where)
    values = parts[:, order] * _signs(_own(name, channel))
    return replace(channel, values=values.reshape(channel.values.shape))


def _order(names: Sequence[str], swap: Mapping[str, str], what: str, where: str) -> list[int]:
    """Which of the names stands in the place of each."""
    places = {name: number for number, name in enumerate(names)}
    for name in names:
        if (other := _partner(name, swap)) not in places:
            raise _without_partner(name, other, what, where)
    return [places[_partner(name, swap)] for name in names]


def _partner(name: str, swap: Mapping[str, str]) -> str:
    """The name on the other side; its own, if it has no side."""
    both = {**swap, **{right: left for left, right in swap.items()}}
    return "".join(both.get(word, word) for word in WORD.split(name))


def _without_partner(name: str, other: str, what: str, where: str) -> DataError:
    return DataError(
        f"{where}, {what} '{name}'",
        "has no partner on the other side",
        expected=f"'{other}'",
        do="Say in mirror.swap which words change places.",
    )
