"""Tracking in formulas: what an error pays, how far apart rotations are, and how far a clip is."""

import math

import numpy as np
import pytest

from understudy.core.errors import ConfigError
from understudy.envs.tracking import (
    TrackingSettings,
    clip_phase,
    squared_angles,
    squared_distances,
    tracking_terms,
)


def test_what_an_error_pays() -> None:
    """d² = 3² + 4² and 1²; at d = 1/√k a segment pays 1/e of its weight."""
    squares = squared_distances(np.array([3.0, 4.0, 7.0]), np.array([0.0, 0.0, 6.0]), np.array([0, 2]))
    assert squares.tolist() == [25.0, 1.0]
    terms = tracking_terms(squares, np.array([0.6, 0.4]), np.array([0.04, 2.0]))
    assert terms == pytest.approx([0.6 / math.e, 0.4 * math.exp(-2.0)])
    assert tracking_terms(np.zeros(1), np.array([0.3]), np.array([9.0])).tolist() == [0.3]


def test_angles_between_quaternions_whatever_their_signs() -> None:
    def turn(angle: float, axis: int) -> list[float]:
        vector = [0.0, 0.0, 0.0]
        vector[axis] = math.sin(angle / 2)
        return [math.cos(angle / 2), *vector]

    one, other = np.array(turn(0.3, 0) + turn(1.0, 2)), np.array(turn(-0.2, 0) + turn(0.4, 2))
    assert squared_angles(one, other) == pytest.approx(0.5**2 + 0.6**2)
    other[:4] *= -2.0
    assert squared_angles(one, other) == pytest.approx(0.5**2 + 0.6**2)
    assert squared_angles(one, one) == pytest.approx(0.0, abs=1e-12)


def test_a_looped_clip_goes_once_around_and_one_that_ends_half() -> None:
    assert clip_phase(0, 40, True) == (0.0, 1.0)
    assert clip_phase(10, 40, True) == pytest.approx((1.0, 0.0))
    assert clip_phase(50, 40, True) == pytest.approx(clip_phase(10, 40, True))
    assert clip_phase(20, 40, False) == pytest.approx((1.0, 0.0))
    assert clip_phase(40, 40, False) == pytest.approx((0.0, -1.0))


def test_settings_that_track_nothing_are_refused() -> None:
    for wrong, told in (
        ({}, "segments"),
        ({"segments": {}}, "segments"),
        ({"segments": {"position": {"weight": 0}}}, "every weight in segments is 0"),
        ({"segments": {"position": {"scale": 0}}}, "scale"),
        ({"segments": {"position": {"scale": -1}}}, "scale"),
        ({"segments": {"position": {"weight": -1}}}, "weight"),
        ({"segments": {"position": {"max_error": 0}}}, "max_error"),
        ({"segments": {"a.x": {}, "b.x": {}}}, "same last name"),
        ({"segments": {"position": {"kernel": 1}}}, "kernel"),
        ({"segments": {"position": {}}, "reference_start": 1.5}, "reference_start"),
        ({"segments": {"position": {}}, "preview": [-1]}, "preview"),
    ):
        with pytest.raises(ConfigError, match=told):
            TrackingSettings.parse(wrong)
