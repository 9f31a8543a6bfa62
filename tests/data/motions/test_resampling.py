"""Clips at another step: lines stay lines, turns stay turns, and rounds close."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from motion_makers import JOINTS, SLOPES, SPEED, TURN, round_walk, straight_walk, turned, write_clip
from understudy.core.errors import DataError
from understudy.data.motions import MotionSet, MotionSettings, load_motions


def load(path: Path, step: float, **settings: object) -> MotionSet:
    return load_motions(MotionSettings.parse({"path": str(path), "step": step, **settings}))


def every(motions: MotionSet, *channels: str, clip: int = 0) -> tuple[Tensor, ...]:
    """Each channel [n, K] at the frames of a clip."""
    times = torch.arange(int(motions.lengths[clip]))
    found = motions.at(channels, torch.full_like(times, clip), times)
    return tuple(found[name] for name in channels)


def angle_between(first: Tensor, second: Tensor) -> Tensor:
    return 2 * torch.acos((first * second).sum(-1).abs().clamp(max=1.0))


@pytest.mark.parametrize("step", [1 / 60, 1 / 30, 0.02, 0.013, 0.001])
def test_a_line_stays_a_line_and_a_turn_a_turn(tmp_path: Path, step: float) -> None:
    motions = load(write_clip(tmp_path / "walk.npz", straight_walk()), step)
    joints, speeds, place, velocity, rotation, turn = every(
        motions,
        *("joint_positions", "joint_velocities", "root_position"),
        *("root_linear_velocity", "root_rotation", "root_angular_velocity"),
    )
    times = np.arange(len(joints)) * step
    assert len(joints) == math.floor(1 / step + 1e-6) + 1
    np.testing.assert_allclose(joints, times[:, None] * SLOPES + np.linspace(-0.2, 0.2, 5), atol=1e-6)
    np.testing.assert_allclose(speeds, np.tile(SLOPES, (len(times), 1)), atol=1e-6)
    np.testing.assert_allclose(place, [0, 0, 0.8] + times[:, None] * SPEED, atol=1e-6)
    np.testing.assert_allclose(velocity, np.tile(SPEED, (len(times), 1)), atol=1e-6)
    np.testing.assert_allclose(turn, np.tile(TURN, (len(times), 1)), atol=1e-6)
    expected = turned(times * float(np.linalg.norm(TURN)), TURN)
    np.testing.assert_allclose(rotation, expected, atol=1e-6)


def test_frames_are_taken_as_they_are_where_the_step_is_a_whole_number_of_them(tmp_path: Path) -> None:
    clip = straight_walk(61)
    noise = np.random.default_rng(0).standard_normal(clip["dof_positions"].shape)
    path = write_clip(tmp_path / "walk.npz", clip, dof_positions=noise)
    for step, stride in ((1 / 60, 1), (0.05, 3), (1 / 12, 5)):
        (joints,) = every(load(path, step), "joint_positions")
        np.testing.assert_array_equal(joints, noise[::stride].astype(np.float32))


def test_either_quaternion_of_a_rotation_gives_the_same_motion(tmp_path: Path) -> None:
    clip = straight_walk()
    flipped = clip["body_rotations"].copy()
    flipped[np.random.default_rng(1).random(61) < 0.5] *= -1
    channels = ("root_rotation", "root_angular_velocity", "gravity", "heading_free_rotation")
    plain = every(load(write_clip(tmp_path / "a.npz", clip), 0.007), *channels)
    turned_round = every(load(write_clip(tmp_path / "b.npz", clip, body_rotations=flipped), 0.007), *channels)
    sign = torch.sign((plain[0] * turned_round[0]).sum(1, keepdim=True))
    assert bool((sign == sign[0]).all()), "one sign for the whole clip"
    torch.testing.assert_close(plain[0], turned_round[0] * sign, atol=1e-6, rtol=0)
    for one, other in zip(plain[1:], turned_round[1:], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_velocities_that_the_file_has_are_taken_from_it(tmp_path: Path) -> None:
    clip = straight_walk()
    told = np.random.default_rng(2).standard_normal((61, 5))
    path = write_clip(tmp_path / "walk.npz", clip, dof_velocities=told)
    (speeds,) = every(load(path, 1 / 30), "joint_velocities")
    np.testing.assert_array_equal(speeds, told[::2].astype(np.float32))
    (between,) = every(load(path, 1 / 120), "joint_velocities")
    np.testing.assert_allclose(between[1::2], (told[1:] + told[:-1]) / 2, atol=1e-6)


def test_a_round_closes_and_the_root_goes_on_from_where_it_was(tmp_path: Path) -> None:
    motions = load(write_clip(tmp_path / "walk.npz", round_walk(60)), 0.02, loop=True)
    assert motions.lengths.tolist() == [50]
    assert motions.durations.tolist() == [50]
    times = torch.arange(0, 200, 0.25, dtype=torch.float64)
    found = motions.at(
        ("joint_positions", "root_position", "joint_velocities"), torch.zeros(800, dtype=torch.int64), times
    )
    seconds = (times * 0.02).numpy()
    np.testing.assert_allclose(found["root_position"], [0, 0, 0.8] + seconds[:, None] * SPEED, atol=1e-5)
    phase = 2 * math.pi * seconds[:, None] + np.arange(5)
    np.testing.assert_allclose(found["joint_positions"], np.sin(phase), atol=0.005)
    np.testing.assert_allclose(found["joint_velocities"], 2 * math.pi * np.cos(phase), atol=0.05)


def test_a_period_that_is_no_whole_number_of_steps_is_stretched_to_one(tmp_path: Path) -> None:
    motions = load(write_clip(tmp_path / "walk.npz", round_walk(61)), 0.02, loop=True)
    assert motions.lengths.tolist() == [51]
    stretch = motions.describe()["stretch"]
    assert stretch == pytest.approx(51 * 0.02 / (61 / 60))
    place, velocity = every(motions, "root_position", "root_linear_velocity")
    np.testing.assert_allclose(velocity[:, 0], 1.5 / stretch, rtol=1e-5)
    np.testing.assert_allclose(place.diff(dim=0)[:, 0] / 0.02, 1.5 / stretch, rtol=1e-4)


def test_clips_that_are_not_looped_stay_at_their_last_frame(tmp_path: Path) -> None:
    motions = load(write_clip(tmp_path / "walk.npz", straight_walk()), 0.02)
    assert motions.durations.tolist() == [50]
    clip, times = torch.zeros(3, dtype=torch.int64), torch.tensor([50.0, 50.5, 1000.0])
    found = motions.at(("joint_positions", "root_position"), clip, times)
    for values in found.values():
        assert bool((values == values[0]).all())
    np.testing.assert_allclose(found["root_position"][0, 0], 1.5, atol=1e-6)


def test_between_frames_rotations_turn_at_a_constant_rate(tmp_path: Path) -> None:
    motions = load(write_clip(tmp_path / "walk.npz", straight_walk(7, fps=6)), 1 / 6)
    times = torch.linspace(0, 6, 61, dtype=torch.float64)
    rotation = motions.at(("root_rotation",), torch.zeros(61, dtype=torch.int64), times)["root_rotation"].double()
    expected = torch.from_numpy(turned((times / 6).numpy() * float(np.linalg.norm(TURN)), TURN))
    assert float(angle_between(rotation, expected).max()) < 1e-3
    torch.testing.assert_close(rotation, expected, atol=1e-6, rtol=0)


def test_every_other_frame_of_a_round_is_the_same_round(tmp_path: Path) -> None:
    clip = round_walk(60)
    twice = {name: np.repeat(values[::2], 2, 0) if values.ndim > 1 else values for name, values in clip.items()}
    plain = load(
        write_clip(
            tmp_path / "plain.npz",
            {**clip, "fps": np.array(30.0)},
            **{name: values[::2] for name, values in clip.items() if values.ndim > 1},
        ),
        0.02,
        loop=True,
    )
    strided = load(write_clip(tmp_path / "twice.npz", twice), 0.02, loop=True, clips={"t*": {"stride": 2}})
    assert strided.lengths.tolist() == plain.lengths.tolist() == [50]
    for name, (first, second) in {
        name: (every(plain, name)[0], every(strided, name)[0]) for name in plain.channels
    }.items():
        torch.testing.assert_close(first, second, msg=name)


def test_velocities_that_contradict_the_frames_per_second_are_refused(tmp_path: Path) -> None:
    clip = round_walk(60)
    told = {"dof_velocities": np.gradient(clip["dof_positions"], 1 / 60, axis=0)}
    path = write_clip(tmp_path / "walk.npz", clip, **told, fps=np.array(30.0))
    with pytest.raises(
        DataError, match=r"clip 'walk.npz': its velocities contradict .* got 30 fps, expected 60, .* fps=60"
    ):
        load(path, 0.02)
    assert load(path, 1 / 60, fps=60).frames == 60
    assert load(path, 1 / 30, fps=30).frames == 60, "whoever insists is believed"
    assert load(path, 1 / 30, velocities="differences").frames == 60


def test_clips_are_cut_by_the_second(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "walk.npz", straight_walk())
    motions = load(path, 1 / 60, clips={"walk": {"start": 0.25, "end": 0.75}})
    (joints,) = every(motions, "joint_positions")
    np.testing.assert_array_equal(joints, straight_walk()["dof_positions"][15:46].astype(np.float32))
    assert motions.channels["joint_positions"] == JOINTS
