"""PyBullet's half cheetah: a bounding gait to record play with.

The gait is a controller without memory, so that a policy without memory can imitate it. Where in its stride the cheetah
is, is read off the back thigh: angle and speed of a joint that swings are the two coordinates of a circle. Every joint
is pulled toward a place on its own swing, ahead of the stride by a lead of its own, and all lean against pitch. The
numbers were found by a search over returns (CMA-ES), and rounded.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PITCH = 7
ANGLES, SPEEDS = slice(8, 20, 2), slice(9, 20, 2)
"""Of back thigh, shin and foot and of front thigh, shin and foot: -1 to 1 between the joint's limits."""
REST = np.array([-0.61, -0.14, 0.13, 0.36, 0.29, 0.78])
"""Middle of each joint's swing."""
SWING = np.array([0.73, 0.26, 0.3, 0.26, 0.31, 0.26])
"""How far it swings."""
LEAD = np.array([1.76, 2.14, 2.09, 1.93, -0.49, 0.52])
"""How far ahead of the back thigh it is pulled, in radians of the stride."""
LEAN = np.array([0.75, 0.78, -0.35, 0.37, 0.61, 0.61])
"""How far its goal moves with the body's pitch."""
PULL = np.array([5.26, 2.89, 1.62, 4.36, 3.49, 2.43])
"""Torque for a distance from the goal."""
DRAG, TEMPO = 1.0, 2.25
"""Torque against speed, and what makes the back thigh's speed comparable with its angle."""


def bound(groups: Mapping[str, NDArray[Any]], skill: float) -> NDArray[np.float64]:
    """Torques [6]. Less skill pushes more weakly: knees touch the ground first, then the body stays there."""
    state = groups["state"].astype(np.float64)
    angle, speed = state[ANGLES], state[SPEEDS]
    stride = np.arctan2(-TEMPO * speed[0], angle[0] - REST[0])
    goal = REST + SWING * np.cos(stride + LEAD) + LEAN * state[PITCH]
    torque: NDArray[np.float64] = np.clip(PULL * (goal - angle) - DRAG * speed, -1.0, 1.0)
    return skill * torque
