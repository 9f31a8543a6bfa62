"""Clips of which everything is known: a body that walks along a line and turns at a constant rate."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

JOINTS = ("left_hip_pitch", "left_hip_roll", "right_hip_pitch", "right_hip_roll", "waist_yaw")
BODIES = ("pelvis", "left_foot", "right_foot")
SPEED = np.array([1.5, 0.25, 0.0])
TURN = np.array([0.3, -0.4, 1.2])
"""Angular velocity in the world: constant, about one axis."""
SLOPES = np.array([0.1, -0.2, 0.3, -0.4, 0.5])
"""Radians per second of each joint."""


def turned(angles: NDArray[Any], axis: NDArray[Any]) -> NDArray[np.float64]:
    """Quaternions [n, 4], w first, of turns [n] about an axis."""
    unit = axis / np.linalg.norm(axis)
    half = np.asarray(angles, np.float64)[:, None] / 2
    return np.concatenate([np.cos(half), np.sin(half) * unit], 1)


def straight_walk(frames: int = 61, fps: float = 60.0) -> dict[str, Any]:
    """Arrays of a clip: positions are lines, the rotation has a constant angular velocity."""
    times = np.arange(frames) / fps
    root = np.array([0.0, 0.0, 0.8]) + times[:, None] * SPEED
    rotation = turned(times * float(np.linalg.norm(TURN)), TURN)
    feet = [root + np.array([0.0, side, -0.8]) for side in (0.1, -0.1)]
    return {
        "fps": np.array(fps),
        "dof_names": np.array(JOINTS),
        "body_names": np.array(BODIES),
        "dof_positions": times[:, None] * SLOPES + np.linspace(-0.2, 0.2, len(JOINTS)),
        "body_positions": np.stack([root, *feet], 1),
        "body_rotations": np.repeat(rotation[:, None], 3, 1),
    }


def round_walk(frames: int = 60, fps: float = 60.0) -> dict[str, Any]:
    """A period of a gait: joints go round once in `frames` frames, the root goes 1.5 m/s forward."""
    clip = straight_walk(frames, fps)
    phase = 2 * math.pi * np.arange(frames) / frames
    clip["dof_positions"] = np.sin(phase[:, None] + np.arange(len(JOINTS)))
    still = np.tile([1.0, 0.0, 0.0, 0.0], (frames, 3, 1))
    return {**clip, "body_rotations": still}


def write_clip(path: Path, arrays: dict[str, Any], **changes: Any) -> Path:
    """An .npz; a change of None leaves an array out."""
    kept = {name: values for name, values in {**arrays, **changes}.items() if values is not None}
    np.savez(path, allow_pickle=False, **kept)
    return path
