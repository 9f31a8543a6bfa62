"""Joints of a MuJoCo model as reference motions tell them: by name, and three-axis joints as rotation vectors.

A clip has a number for each degree of freedom: the angle of a hinge, and of a ball joint the three components of its
rotation vector φ (the exponential map), called `hip.x` or `hip_x`. MuJoCo has a quaternion for the latter, and for its
velocity ω, in the frame of the body that turns. With θ = |φ| and [φ] the cross product with φ,

    ω = J φ̇ = φ̇ − (1 − cos θ)/θ² [φ]φ̇ + (θ − sin θ)/θ³ [φ]²φ̇,      φ̇ = J⁻¹ω = ω + [φ]ω/2 + c [φ]²ω,
    c = (1 − θ/2·cot θ/2)/θ²

A free joint turns in the frame of its body, too, and moves in the world's.
"""

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Names = tuple[str, ...]
AXES = "xyz"
SMALL = 1e-4
"""Sines, and squares of angles, below which quotients are what they tend to."""
NEXT, AFTER = [1, 2, 0], [2, 0, 1]
ROOT = ("root_position", "root_rotation", "root_linear_velocity", "root_angular_velocity")
JOINTS = ("joint_positions", "joint_velocities")


def quaternions(vectors: Floats) -> Floats:
    """[N, 4], w first, of rotation vectors [N, 3]."""
    half = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) / 2
    share = np.where(half > SMALL, np.sin(half) / np.maximum(2 * half, SMALL), 0.5)
    return np.concatenate([np.cos(half)[:, None], vectors * share[:, None]], axis=1)


def rotation_vectors(rotations: Floats) -> Floats:
    """[N, 3], of at most half a turn, of quaternions [N, 4]."""
    signed = np.where(rotations[:, :1] < 0, -rotations, rotations)
    sine = np.sqrt(np.einsum("ij,ij->i", signed[:, 1:], signed[:, 1:]))
    angle = 2 * np.arctan2(sine, signed[:, 0])
    share: Floats = np.where(sine > SMALL, angle / np.maximum(sine, SMALL), 2.0)
    return signed[:, 1:] * share[:, None]


def turning(vectors: Floats, rates: Floats) -> Floats:
    """ω [N, 3], in the frame of what turns, of rotation vectors φ and their rates φ̇ [N, 3]."""
    square, angle = _squared(vectors)
    first = np.where(square > SMALL, (1 - np.cos(angle)) / angle**2, 0.5)
    second = np.where(square > SMALL, (angle - np.sin(angle)) / angle**3, 1 / 6)
    turned: Floats = rates - first * _cross(vectors, rates) + second * _twice(vectors, rates, square)
    return turned


def rates_of(vectors: Floats, turns: Floats) -> Floats:
    """φ̇ [N, 3] of rotation vectors φ and what they turn by, ω [N, 3]: the inverse of `turning`."""
    square, angle = _squared(vectors)
    share = np.where(square > SMALL, (1 - angle / 2 / np.tan(angle / 2)) / angle**2, 1 / 12)
    rates: Floats = turns + 0.5 * _cross(vectors, turns) + share * _twice(vectors, turns, square)
    return rates


def _squared(vectors: Floats) -> tuple[Floats, Floats]:
    """θ² and θ [N, 1], the latter of no less than is divided by."""
    square = np.einsum("ij,ij->i", vectors, vectors)[:, None]
    return square, np.sqrt(np.maximum(square, SMALL))


def _cross(one: Floats, other: Floats) -> Floats:
    """[N, 3], in a third of the time of np.cross."""
    product: Floats = one[:, NEXT] * other[:, AFTER] - one[:, AFTER] * other[:, NEXT]
    return product


def _twice(vectors: Floats, other: Floats, square: Floats) -> Floats:
    """[φ]²x = φ(φ·x) − θ²x"""
    doubled: Floats = vectors * np.einsum("ij,ij->i", vectors, other)[:, None] - square * other
    return doubled


@final
class JointStates:
    """Reads and writes the state of a model in a motion's words. `free` is whether its root moves through the world."""

    def __init__(self, model: Any) -> None:
        import mujoco  # type: ignore[import-untyped]

        kinds, names = model.jnt_type, [model.joint(number).name for number in range(model.njnt)]
        is_free, is_ball = kinds == mujoco.mjtJoint.mjJNT_FREE, kinds == mujoco.mjtJoint.mjJNT_BALL
        self.free = bool(model.njnt and is_free[0])
        self.whole = not is_free[1:].any() and all(names[self.free :])
        """Every joint has a name, and none but the first is free: only then can it be told."""
        self._single: list[tuple[int, int, int]] = []
        self._balls: list[tuple[int, int, int]] = []
        """Where each joint stands among a clip's components, in qpos and in qvel."""
        self.names: Names = ()
        for number in range(int(self.free), model.njnt):
            entry = len(self.names), int(model.jnt_qposadr[number]), int(model.jnt_dofadr[number])
            (self._balls if is_ball[number] else self._single).append(entry)
            self.names += tuple(f"{names[number]}_{axis}" for axis in AXES) if is_ball[number] else (names[number],)
        single = np.array(self._single, np.intp).reshape(-1, 3)
        balls = np.array(self._balls, np.intp).reshape(-1, 3)
        self._of_single = single[:, 0], single[:, 1], single[:, 2]
        three, four = np.arange(3), np.arange(4)
        self._of_balls = balls[:, :1] + three, balls[:, 1:2] + four, balls[:, 2:] + three
        self._rest = model.qpos0.copy()
        self._positions, self._velocities = np.zeros(len(self.names)), np.zeros(len(self.names))

    @property
    def channels(self) -> dict[str, int | Names]:
        """What a motion must tell to put the model somewhere."""
        root: dict[str, int | Names] = dict(zip(ROOT, (3, 4, 3, 3), strict=True))
        return {**(root if self.free else {}), **dict.fromkeys(JOINTS, self.names)}

    def write(self, state: Mapping[str, Floats]) -> tuple[Floats, Floats]:
        """qpos and qvel of channels."""
        positions, velocities = self._rest.copy(), np.zeros(self._rest.size - len(self._balls) - self.free)
        if self.free:
            place, rotation, linear, angular = (np.asarray(state[name], np.float64) for name in ROOT)
            positions[:3], positions[3:7] = place, rotation / np.linalg.norm(rotation)
            velocities[:3], velocities[3:6] = linear, rotation_matrix(positions[3:7]).T @ angular
        angles, speeds = (np.asarray(state[name], np.float64) for name in JOINTS)
        component, place_in, speed_in = self._of_single
        positions[place_in], velocities[speed_in] = angles[component], speeds[component]
        component, place_in, speed_in = self._of_balls
        if len(component):
            positions[place_in] = quaternions(angles[component])
            velocities[speed_in] = turning(angles[component], speeds[component])
        return positions, velocities

    def read(self, qpos: Floats, qvel: Floats) -> tuple[Floats, Floats]:
        """Joint positions and velocities [J] as clips have them; they hold until the next call."""
        component, place_in, speed_in = self._of_single
        self._positions[component], self._velocities[component] = qpos[place_in], qvel[speed_in]
        component, place_in, speed_in = self._of_balls
        if len(component):
            vectors = rotation_vectors(qpos[place_in])
            self._positions[component] = vectors
            self._velocities[component] = rates_of(vectors, qvel[speed_in])
        return self._positions, self._velocities


def rotation_matrix(rotation: Floats) -> Floats:
    """[3, 3] of a quaternion [4] of norm 1."""
    w, x, y, z = rotation
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
