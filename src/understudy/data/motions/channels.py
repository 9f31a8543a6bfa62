"""Channels that follow from others, frame by frame: each is a pure function of rows [N, K].

    root_height               z
    gravity                   Rᵀ(0, 0, −1): down, as the root feels it
    local_linear_velocity     Rᵀv
    local_angular_velocity    Rᵀω
    heading_free_rotation     where x and z of the root point, its turn about the vertical taken off
    body_positions_in_root    Rᵀ(p − p_root) of every body
    body_positions_in_heading the same, turned about the vertical alone

R is the root's rotation; v and ω are its velocities in the world.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from understudy.data.motions.clip import XYZ
from understudy.data.motions.rotations import heading, inverse, multiply, rotate_back, tangent_and_normal


def root_height(root_position: Tensor) -> Tensor:
    """[N, 1]"""
    return root_position[:, 2:3]


def gravity(root_rotation: Tensor) -> Tensor:
    """[N, 3]"""
    down = root_rotation.new_tensor([0.0, 0.0, -1.0]).expand(len(root_rotation), 3)
    return rotate_back(root_rotation, down)


def local_velocity(root_rotation: Tensor, velocity: Tensor) -> Tensor:
    """[N, 3]"""
    return rotate_back(root_rotation, velocity)


def heading_free_rotation(root_rotation: Tensor) -> Tensor:
    """[N, 6]: tangent and normal."""
    return tangent_and_normal(multiply(inverse(heading(root_rotation)), root_rotation))


def bodies_in_root(root_position: Tensor, root_rotation: Tensor, body_positions: Tensor) -> Tensor:
    """[N, 3 for each body]"""
    around = body_positions.view(len(body_positions), -1, 3) - root_position.unsqueeze(1)
    return rotate_back(root_rotation.unsqueeze(1).expand(*around.shape[:2], 4), around).reshape(body_positions.shape)


def bodies_in_heading(root_position: Tensor, root_rotation: Tensor, body_positions: Tensor) -> Tensor:
    """[N, 3 for each body]"""
    return bodies_in_root(root_position, heading(root_rotation), body_positions)


@dataclass(frozen=True)
class Derived:
    """A channel computed from others of the same frame."""

    sources: tuple[str, ...]
    compute: Callable[..., Tensor]
    components: tuple[str, ...] = ()
    """Empty: those of its last source."""


SIX = tuple(f"{vector}.{axis}" for vector in ("tangent", "normal") for axis in XYZ)
DERIVED: dict[str, Derived] = {
    "root_height": Derived(("root_position",), root_height, ("z",)),
    "gravity": Derived(("root_rotation",), gravity, XYZ),
    "local_linear_velocity": Derived(("root_rotation", "root_linear_velocity"), local_velocity, XYZ),
    "local_angular_velocity": Derived(("root_rotation", "root_angular_velocity"), local_velocity, XYZ),
    "heading_free_rotation": Derived(("root_rotation",), heading_free_rotation, SIX),
    "body_positions_in_root": Derived(("root_position", "root_rotation", "body_positions"), bodies_in_root),
    "body_positions_in_heading": Derived(("root_position", "root_rotation", "body_positions"), bodies_in_heading),
}


def derivable(components: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Channels that follow from these, and what their components are called."""
    return {
        name: one.components or components[one.sources[-1]]
        for name, one in DERIVED.items()
        if name not in components and all(source in components for source in one.sources)
    }
