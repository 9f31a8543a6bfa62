"""Rotations as unit quaternions [..., 4], w first: pure functions of tensors.

A rotation has two quaternions, q and −q. What goes from one rotation to another goes the shorter way, whichever of the
two stand there.
"""

import torch
from torch import Tensor

TINY = 1e-12


def cross(first: Tensor, second: Tensor) -> Tensor:
    """first × second [..., 3]; torch's own takes several times as long for many short vectors."""
    a, b, c = first.unbind(-1)
    x, y, z = second.unbind(-1)
    return torch.stack([b * z - c * y, c * x - a * z, a * y - b * x], -1)


def multiply(first: Tensor, second: Tensor) -> Tensor:
    """The rotation `second`, then `first` [..., 4]."""
    w, v = first[..., :1], first[..., 1:]
    other, u = second[..., :1], second[..., 1:]
    scalar = w * other - (v * u).sum(-1, keepdim=True)
    return torch.cat([scalar, w * u + other * v + cross(v, u)], -1)


def inverse(rotation: Tensor) -> Tensor:
    return torch.cat([rotation[..., :1], -rotation[..., 1:]], -1)


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """A vector [..., 3] of the rotated frame in the world's axes: v + 2w(u×v) + 2u×(u×v)."""
    w, u = rotation[..., :1], rotation[..., 1:]
    turn = 2 * cross(u, vector)
    return vector + w * turn + cross(u, turn)


def rotate_back(rotation: Tensor, vector: Tensor) -> Tensor:
    """A vector [..., 3] of the world in the axes of the rotated frame."""
    return rotate(inverse(rotation), vector)


def rotation_vector(rotation: Tensor) -> Tensor:
    """Axis times angle [..., 3], the angle at most π: the exponential map's inverse."""
    shorter = torch.where(rotation[..., :1] < 0, -rotation, rotation)
    length = shorter[..., 1:].norm(dim=-1, keepdim=True).clamp(min=TINY)
    vector: Tensor = 2 * torch.atan2(length, shorter[..., :1]) / length * shorter[..., 1:]
    return vector


def from_rotation_vector(vector: Tensor) -> Tensor:
    """The rotation about an axis by an angle, from their product [..., 3]: the exponential map."""
    angle = vector.norm(dim=-1, keepdim=True)
    share = torch.where(angle > TINY, torch.sin(angle / 2) / angle.clamp(min=TINY), 0.5)
    return torch.cat([torch.cos(angle / 2), share * vector], -1)


def slerp(start: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """From one rotation to another at constant angular velocity, the shorter way; `share` [..., 1] of it is done."""
    return multiply(start, from_rotation_vector(share * rotation_vector(multiply(inverse(start), end))))


def continuous(rotations: Tensor) -> Tensor:
    """The same rotations [n, ..., 4], each by that of its two quaternions which is closer to the one before."""
    turns = (rotations[1:] * rotations[:-1]).sum(-1, keepdim=True) < 0
    flipped = torch.cat([torch.zeros_like(turns[:1]), turns]).to(torch.int64).cumsum(0) % 2 == 1
    return torch.where(flipped, -rotations, rotations)


def heading(rotation: Tensor) -> Tensor:
    """The turn about the vertical alone [..., 4] that brings x where the rotation brings it, seen from above."""
    forward = rotate(rotation, rotation.new_tensor([1.0, 0.0, 0.0]).expand(*rotation.shape[:-1], 3))
    half = torch.atan2(forward[..., 1], forward[..., 0]) / 2
    zero = torch.zeros_like(half)
    return torch.stack([torch.cos(half), zero, zero, torch.sin(half)], -1)


def tangent_and_normal(rotation: Tensor) -> Tensor:
    """Where x and z of the rotated frame point [..., 6]: continuous, unlike angles, and without a sign to choose."""
    shape = (*rotation.shape[:-1], 3)
    tangent, normal = (
        rotate(rotation, rotation.new_tensor(axis).expand(shape)) for axis in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    )
    return torch.cat([tangent, normal], -1)
