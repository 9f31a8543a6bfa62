"""What the numbers of a clip say about themselves: frames per second, and the order of quaternions.

Velocities that the file has are compared with finite differences of its positions. Where they are the same but for one
factor, the frames per second are wrong by that factor; where angular velocities only fit quaternions in the other
order, the order is wrong. Without velocities, bodies that move with the root tell it: in the root's frame they stand
still.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.motions.channels import bodies_in_root
from understudy.data.motions.clip import Channel, Clip
from understudy.data.motions.resampling import VELOCITIES, differences
from understudy.data.motions.rotations import rotate

ALIKE = 0.9
"""Correlation above which velocities are those of the positions, whatever the factor."""
FACTOR = 1.15
"""A factor this far from 1 is no error of differences any more."""
USUAL, NEARLY = (24.0, 25.0, 30.0, 50.0, 60.0, 90.0, 100.0, 120.0, 200.0, 240.0), 0.06
STILL = 1e-3
"""Mean square of velocities below which there is nothing to compare."""
BETTER = 0.25
"""Errors of one order of quaternions, as a share of the other's, below which it is the right one."""
UPRIGHT = 0.5
"""The cosine to the vertical that a robot on its feet always exceeds, and one that is read wrongly hardly ever."""
Order = Literal["wxyz", "xyzw"]


@final
@dataclass(frozen=True)
class Fit:
    """Told velocities against differences: v ≈ factor · d."""

    channel: str
    factor: float
    correlation: float


def velocity_fits(clip: Clip) -> Iterator[Fit]:
    """Of every velocity that the file has beside what it is the velocity of."""
    for name, velocity in VELOCITIES.items():
        if name in clip.channels and velocity in clip.channels and clip.frames > 3:
            told = clip.channels[velocity].values[1:-1].flatten()
            found = differences(clip.channels[name], clip.times)[1:-1].flatten()
            if float(found.square().mean()) > STILL and float(told.square().mean()) > STILL:
                product = float((told * found).sum())
                size = float(found.square().sum())
                yield Fit(velocity, product / size, product / float(told.square().sum() * size) ** 0.5)


def fitting_fps(clip: Clip) -> float | None:
    """The frames per second that the clip's velocities say it has, where they contradict its own; otherwise None."""
    fits = [fit for fit in velocity_fits(clip) if fit.correlation > ALIKE]
    factors = torch.tensor([fit.factor for fit in fits])
    if not fits or bool(((factors < FACTOR) & (factors > 1 / FACTOR)).any()):
        return None
    best = max(fits, key=lambda fit: fit.correlation).factor
    alike = bool(((factors / best - 1).abs() < 2 * (FACTOR - 1)).all())
    return usual(clip.fps * best) if alike and best > 0 else None


def usual(fps: float) -> float:
    """Frames per second as cameras and simulators have them, where it is nearly that."""
    near = min(USUAL, key=lambda one: abs(one - fps))
    return near if abs(near / fps - 1) < NEARLY else fps


def check_fps(clip: Clip) -> None:
    """An error if its velocities say that its frames per second are wrong."""
    fps = fitting_fps(clip)
    if fps is not None:
        raise DataError(
            clip.where,
            "its velocities contradict its frames per second",
            got=f"{clip.fps:.4g} fps",
            expected=f"{fps:.4g}, with which they would be those of its positions",
            do=f"Say fps={fps:.4g} if that is right, or fps={clip.fps:.4g} if its velocities are wrong.",
        )


def other_order_fits(clip: Clip, read: Order = "wxyz") -> str:
    """Why the quaternions seem to have w at the other end than where it was `read`; empty where nothing says so."""
    for name, velocity in (("root_rotation", "root_angular_velocity"), ("body_rotations", "body_angular_velocities")):
        if name in clip.channels and velocity in clip.channels:
            rotations, told = clip.channels[name], clip.channels[velocity].values
            if float(told.square().mean()) < STILL:
                continue
            errors = [
                float((differences(one, clip.times) - told)[1:-1].square().mean()) for one in _orders(rotations, read)
            ]
            if errors[1] < BETTER * errors[0]:
                return f"{velocity} fit them in the other order"
    if {"root_position", "root_rotation", "body_positions"} <= clip.channels.keys():
        spreads = [_stillest(clip, rotation) for rotation in _orders(clip.channels["root_rotation"], read)]
        if spreads[1] < BETTER * spreads[0] and spreads[0] > STILL**2:
            return "bodies move with the root only if they are read in the other order"
    if "root_rotation" in clip.channels:
        uprights = [_uprightness(rotation) for rotation in _orders(clip.channels["root_rotation"], read)]
        if float(uprights[0].max()) < UPRIGHT < float(uprights[1].min()):
            return "the root stands upright only if they are read in the other order"
    return ""


def _orders(rotations: Channel, read: Order) -> tuple[Channel, Channel]:
    """As they were read; and as they would be if w had been at the other end."""
    other = rotations.parts().roll(1 if read == "wxyz" else -1, -1).reshape(rotations.values.shape)
    return rotations, replace(rotations, values=other)


def _stillest(clip: Clip, rotation: Channel) -> float:
    """How much the body moves in the root's frame that moves least there."""
    place, bodies = clip.channels["root_position"].values, clip.channels["body_positions"].values
    around = bodies_in_root(place, _unit(rotation.values), bodies).view(len(place), -1, 3)
    apart = around.square().sum(-1).mean(0) > STILL
    spread = around.var(0).sum(-1)[apart]
    return float(spread.min()) if len(spread) else 0.0


def _uprightness(rotation: Channel) -> Tensor:
    """How far up the root's own z points in each frame [n]."""
    values = _unit(rotation.values)
    return rotate(values, values.new_tensor([0.0, 0.0, 1.0]).expand(len(values), 3))[:, 2]


def _unit(rotation: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rotation, dim=-1)
