"""Rotations and the channels that follow from others, against what is known by hand."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from motion_makers import turned
from understudy.data.motions.channels import (
    bodies_in_heading,
    bodies_in_root,
    gravity,
    heading_free_rotation,
    local_velocity,
    root_height,
)
from understudy.data.motions.rotations import (
    continuous,
    from_rotation_vector,
    heading,
    inverse,
    multiply,
    rotate,
    rotate_back,
    rotation_vector,
    slerp,
)

X, Y, Z = np.eye(3)


def turn(angle: float, axis: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(turned(np.array([angle]), axis))


def rows(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def close(first: Tensor, *second: float) -> None:
    torch.testing.assert_close(first, rows(*second), atol=1e-12, rtol=0)


def random_rotations(count: int) -> Tensor:
    some = torch.randn(count, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.nn.functional.normalize(some, dim=-1)


def test_a_quarter_turn_brings_x_to_y() -> None:
    quarter = turn(math.pi / 2, Z)
    close(rotate(quarter, rows(1, 0, 0)), 0, 1, 0)
    close(rotate_back(quarter, rows(1, 0, 0)), 0, -1, 0)
    close(rotate(multiply(turn(math.pi / 2, X), quarter), rows(1, 0, 0)), 0, 0, 1)


def test_rotations_are_matrices_that_neither_stretch_nor_mirror() -> None:
    rotations = random_rotations(50)
    axes = torch.eye(3, dtype=torch.float64)
    matrices = torch.stack([rotate(rotations, axis.expand(50, 3)) for axis in axes], -1)
    torch.testing.assert_close(matrices @ matrices.mT, axes.expand(50, 3, 3), atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.linalg.det(matrices), torch.ones(50).double(), atol=1e-12, rtol=0)
    first, second = rotations[:25], rotations[25:]
    torch.testing.assert_close(
        torch.stack([rotate(multiply(first, second), axis.expand(25, 3)) for axis in axes], -1),
        matrices[:25] @ matrices[25:],
        atol=1e-12,
        rtol=0,
    )


def test_the_exponential_map_and_back() -> None:
    vectors = torch.tensor([[0.0, 0, 0], [1e-9, 0, 0], [0, 3.1, 0], [0.4, -0.5, 0.6]], dtype=torch.float64)
    torch.testing.assert_close(rotation_vector(from_rotation_vector(vectors)), vectors, atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(rotation_vector(-from_rotation_vector(vectors)), vectors, atol=1e-14, rtol=1e-12)
    close(from_rotation_vector(rows(0, 0, math.pi)), 0, 0, 0, 1)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_slerp_goes_the_shorter_way_at_a_constant_rate(sign: float) -> None:
    start, end = turn(0.2, Y), sign * turn(1.8, Y)
    for share in (0.0, 0.25, 0.5, 1.0):
        between = slerp(start, end, rows(share))
        torch.testing.assert_close(between, turn(0.2 + share * 1.6, Y), atol=1e-12, rtol=0)
    assert torch.equal(slerp(start, end, rows(0.0)), start), "not a bit of it is changed"


def test_quaternions_that_follow_each_other() -> None:
    smooth = torch.from_numpy(turned(np.linspace(0, 9, 40), X + Y))
    flips = torch.ones(40, 1).double()
    flips[[3, 4, 17, 39]] = -1
    assert torch.equal(continuous(smooth * flips), smooth)


def test_gravity_is_what_the_root_feels() -> None:
    close(gravity(turn(0.0, X)), 0, 0, -1)
    close(gravity(turn(1.1, Z)), 0, 0, -1)
    close(gravity(turn(math.pi / 2, Y)), 1, 0, 0)  # nose down: gravity pulls forward
    close(gravity(turn(math.pi / 2, X)), 0, -1, 0)  # rolled to the right
    close(gravity(turn(math.pi, X)), 0, 0, 1)


def test_velocities_in_the_frame_of_the_root() -> None:
    close(local_velocity(turn(math.pi / 2, Z), rows(0, 2, 0)), 2, 0, 0)  # it faces where it goes
    close(local_velocity(turn(math.pi / 2, Y), rows(0, 0, -3)), 3, 0, 0)


def test_height_is_z() -> None:
    close(root_height(rows(4, 5, 0.75)), 0.75)


def test_without_its_heading_a_rotation_is_the_same_whichever_way_it_faces() -> None:
    close(heading_free_rotation(turn(2.0, Z)), 1, 0, 0, 0, 0, 1)
    close(heading_free_rotation(turn(math.pi / 6, Y)), math.cos(math.pi / 6), 0, -0.5, 0.5, 0, math.cos(math.pi / 6))
    lean = random_rotations(20)
    for angle in (0.5, 3.0, -2.0):
        faced = multiply(turn(angle, Z).expand(20, 4), lean)
        torch.testing.assert_close(heading_free_rotation(faced), heading_free_rotation(lean), atol=1e-9, rtol=0)
    close(heading(multiply(turn(0.7, Z), turn(0.3, Y))), math.cos(0.35), 0, 0, math.sin(0.35))


def test_bodies_around_the_root() -> None:
    root, body = rows(1, 2, 3), rows(1, 3, 3, 1, 2, 4)
    close(bodies_in_root(root, turn(math.pi / 2, Z), body), 1, 0, 0, 0, 0, 1)
    tilted = multiply(turn(math.pi / 2, Z), turn(math.pi / 2, X))
    close(bodies_in_root(root, tilted, body), 1, 0, 0, 0, 1, 0)
    close(bodies_in_heading(root, tilted, body), 1, 0, 0, 0, 0, 1)
    close(multiply(tilted, inverse(tilted)), 1, 0, 0, 0)
