"""Joints by name, sign and zero; worlds with another axis up; and what a mirror shows."""

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from motion_makers import BODIES, JOINTS, SPEED, round_walk, straight_walk, turned, write_clip
from understudy.core.errors import ConfigError, DataError
from understudy.data.motions import MotionSet, MotionSettings, load_motions
from understudy.data.motions.resampling import VELOCITIES


def load(path: Path, **settings: object) -> MotionSet:
    return load_motions(MotionSettings.parse({"path": str(path), "step": 1 / 60, **settings}))


def frames(motions: MotionSet, clip: int = 0) -> dict[str, Tensor]:
    times = torch.arange(int(motions.lengths[clip]))
    return motions.at(list(motions.channels), torch.full_like(times, clip), times)


def test_joints_in_the_robots_order_with_its_signs_and_its_zero(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "walk.npz", straight_walk())
    plain = frames(load(path))
    motions = load(path, joints=["waist_yaw", "-left_hip_roll"], joint_offsets={"*roll": 0.5})
    assert motions.channels["joint_positions"] == ("waist_yaw", "left_hip_roll")
    found = frames(motions)
    torch.testing.assert_close(found["joint_positions"][:, 0], plain["joint_positions"][:, 4])
    torch.testing.assert_close(found["joint_positions"][:, 1], -plain["joint_positions"][:, 1] - 0.5)
    torch.testing.assert_close(found["joint_velocities"][:, 1], -plain["joint_velocities"][:, 1])
    renamed = load(path, joints={"waist": "waist_yaw", "hip": "-left_hip_roll"}, joint_offsets={"hip": 0.5})
    assert renamed.channels["joint_velocities"] == ("waist", "hip")
    assert torch.equal(frames(renamed)["joint_positions"], found["joint_positions"])
    with pytest.raises(ConfigError, match=r"motions.joints: a joint twice: got waist_yaw"):
        load(path, joints=["waist_yaw", "-waist_yaw"])


def test_clips_with_joints_in_different_orders_need_to_be_told_which(tmp_path: Path) -> None:
    clip = straight_walk()
    write_clip(tmp_path / "a.npz", clip)
    order = [4, 3, 2, 1, 0]
    other = {"dof_names": clip["dof_names"][order], "dof_positions": clip["dof_positions"][:, order]}
    write_clip(tmp_path / "b.npz", clip, **other)
    motions = load(tmp_path)
    assert "joint_positions" not in motions.channels
    with pytest.raises(DataError, match=r"clips 'a' and 'b' do not have the same components, in another order: say"):
        motions.windows(["joint_positions"], 2)
    write_clip(tmp_path / "c.npz", clip, dof_names=np.array(list("abcde")))
    with pytest.raises(DataError, match=r"clip 'c.npz', joint 'left_hip_pitch': no such joint"):
        load(tmp_path, joints=JOINTS)
    told = load(tmp_path, joints=JOINTS, clips={"c": {"weight": 0}})
    assert torch.equal(frames(told, 0)["joint_positions"], frames(told, 1)["joint_positions"])


def test_a_mirror_undoes_itself_and_turns_what_points_sideways(tmp_path: Path) -> None:
    clip = straight_walk()
    rng = np.random.default_rng(0)
    clip["body_positions"] = clip["body_positions"] + rng.standard_normal((61, 3, 3)) * 0.01
    path = write_clip(tmp_path / "walk.npz", clip, dof_positions=rng.standard_normal((61, 5)))
    motions = load(path, mirror=True)
    assert motions.clips == ("walk", "walk (mirrored)")
    plain, mirror = frames(motions, 0), frames(motions, 1)
    left = [JOINTS.index(name) for name in ("right_hip_pitch", "right_hip_roll", "left_hip_pitch", "left_hip_roll")]
    expected = plain["joint_positions"][:, [*left, 4]] * torch.tensor([1, -1, 1, -1, -1])
    assert torch.equal(mirror["joint_positions"], expected)
    sideways = torch.tensor([1.0, -1.0, 1.0])
    assert torch.equal(mirror["root_position"], plain["root_position"] * sideways)
    feet = plain["body_positions"].view(-1, 3, 3)[
        :, [BODIES.index(name) for name in ("pelvis", "right_foot", "left_foot")]
    ]
    assert torch.equal(mirror["body_positions"].view(-1, 3, 3), feet * sideways)
    for name in ("gravity", "local_linear_velocity"):
        torch.testing.assert_close(mirror[name], plain[name] * sideways, atol=1e-6, rtol=0)
    torch.testing.assert_close(mirror["local_angular_velocity"], -plain["local_angular_velocity"] * sideways)


def test_a_mirrored_round_goes_on_to_the_other_side(tmp_path: Path) -> None:
    motions = load(write_clip(tmp_path / "walk.npz", round_walk()), mirror=True, loop=True)
    place = motions.at(["root_position"], torch.tensor([0, 1]), torch.tensor([600.0, 600.0]))["root_position"]
    np.testing.assert_allclose(place[0, :2], 10 * SPEED[:2], atol=1e-4)
    np.testing.assert_allclose(place[1, :2], 10 * SPEED[:2] * [1, -1], atol=1e-4)


def test_velocities_in_the_mirror_are_those_of_the_mirrored_positions(tmp_path: Path) -> None:
    """A mirrored file gives the same as the mirror: finite differences know nothing of names and signs."""
    path = write_clip(tmp_path / "walk.npz", straight_walk())
    mirror = frames(load(path, mirror=True), 1)
    arrays: dict[str, Any] = {"dof_positions": mirror["joint_positions"].numpy()}
    arrays |= {"body_positions": mirror["body_positions"].view(-1, 3, 3).numpy()}
    arrays |= {"body_rotations": mirror["body_rotations"].view(-1, 3, 4).numpy()}
    again = frames(load(write_clip(tmp_path / "again.npz", straight_walk(), **arrays)))
    for name in VELOCITIES.values():
        torch.testing.assert_close(again[name], mirror[name], atol=2e-4, rtol=0)


def test_names_without_a_partner_and_clips_without_a_mirror(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "walk.npz", straight_walk(), dof_names=np.array(["left_a", "b", "c", "d", "e"]))
    with pytest.raises(DataError, match=r"clip 'walk.npz', joint 'left_a': has no partner .* expected 'right_a'"):
        load(path, mirror=True)
    assert len(load(path, mirror=True, clips={"walk": {"mirror": False}}).clips) == 1
    assert len(load(path, mirror={"swap": {"left_a": "b"}}, clips={"*": {"mirror": False}}).clips) == 1
    with pytest.raises(DataError, match=r"body 'left_foot': has no partner"):
        load(
            write_clip(tmp_path / "one.npz", straight_walk(), body_names=np.array(["pelvis", "left_foot", "hand"])),
            mirror=True,
        )


def test_quaternions_in_another_order_and_another_axis_up(tmp_path: Path) -> None:
    clip = straight_walk()
    plain = frames(load(write_clip(tmp_path / "a.npz", clip)))
    last = write_clip(tmp_path / "b.npz", clip, body_rotations=np.roll(clip["body_rotations"], -1, -1))
    for name, values in frames(load(last, quaternions="xyzw")).items():
        assert torch.equal(values, plain[name]), name
    # z up → y up is (x, y, z) → (x, z, −y), of vectors and of what quaternions turn about.
    lying = [0, 2, 1], np.array([1.0, 1.0, -1.0])
    positions = clip["body_positions"][..., lying[0]] * lying[1]
    vectors = clip["body_rotations"][..., 1:][..., lying[0]] * lying[1]
    rotations = np.concatenate([clip["body_rotations"][..., :1], vectors], -1)
    path = write_clip(tmp_path / "c.npz", clip, body_positions=positions, body_rotations=rotations)
    for name, values in frames(load(path, up="y")).items():
        torch.testing.assert_close(values, plain[name], atol=1e-6, rtol=0)


def deepmimic(path: Path, frames: int = 11, loop: str = "wrap", last: float = 0.0) -> Path:
    """A humanoid that goes along x, y up, and bends its chest about y and its right knee at constant rates."""
    rows = []
    chest = turned(np.arange(frames) * 0.1, np.array([0.0, 1.0, 0.0]))
    for number in range(frames):
        ball = [1.0, 0.0, 0.0, 0.0]
        joints = [*chest[number], *ball, *ball, 0.2 * number, *ball, *ball, 0.0, *ball, -0.5, *ball, *ball, 0.0]
        rows.append([0.05, 0.1 * number, 0.9, 0.0, *ball, *joints])
    rows[-1][0] = last
    path.write_text(json.dumps({"Loop": loop, "Frames": rows}))
    return path


def test_deepmimics_frames_are_channels_of_joints(tmp_path: Path) -> None:
    asked = ["right_knee", "chest.y", "chest.z", "-left_knee"]
    motions = load(deepmimic(tmp_path / "walk.txt", loop="none"), step=0.025, up="y", joints=asked)
    assert motions.lengths.tolist() == [21]
    assert not bool(motions.looped.any())
    assert {"chest_rotation", "left_ankle_rotation", "root_height"} <= motions.channels.keys()
    found = frames(motions)
    times = np.arange(21) * 0.5
    np.testing.assert_allclose(found["joint_positions"][:, 0], 0.2 * times, atol=1e-6)
    np.testing.assert_allclose(found["joint_positions"][:, 2], 0.1 * times, atol=1e-6)  # y up is z up
    np.testing.assert_allclose(found["joint_positions"][:, 1], 0.0, atol=1e-6)
    np.testing.assert_allclose(found["joint_positions"][:, 3], 0.5, atol=1e-6)
    np.testing.assert_allclose(found["joint_velocities"][:, 2], 0.1 / 0.05, atol=1e-5)
    np.testing.assert_allclose(found["chest_rotation"][:, 3], np.sin(0.05 * times), atol=1e-6)
    np.testing.assert_allclose(found["root_height"][:, 0], 0.9, atol=1e-6)
    np.testing.assert_allclose(found["root_linear_velocity"][:, 0], 2.0, atol=1e-5)
    assert load(tmp_path / "walk.txt", step=0.025).channels["joint_positions"] == (
        *("right_knee", "right_elbow", "left_knee", "left_elbow"),
    )


def test_a_round_of_deepmimics_ends_with_its_first_frame_or_before_it(tmp_path: Path) -> None:
    same = load(deepmimic(tmp_path / "a.txt", 11, last=0.0), step=0.05, up="y")
    before = load(deepmimic(tmp_path / "b.txt", 11, last=0.05), step=0.05, up="y")
    assert [one.lengths.tolist() for one in (same, before)] == [[10], [11]]
    for motions, period in ((same, 10), (before, 11)):
        clip, times = torch.zeros(2, dtype=torch.int64), torch.tensor([2.0, 2.0 + 3 * period])
        place = motions.at(["root_position"], clip, times)["root_position"]
        np.testing.assert_allclose(place[1] - place[0], [0.3 * period, 0, 0], atol=1e-5)


def test_a_clip_that_does_not_wrap_keeps_its_last_frame_when_it_is_looped(tmp_path: Path) -> None:
    path = deepmimic(tmp_path / "a.txt", 11, loop="none", last=0.0)
    motions = load(path, step=0.05, up="y", loop=True, joints=["chest.z", "right_knee"])
    assert motions.lengths.tolist() == [11]
    # The chest turns by 0.1 a frame, and from 1.0 back to 0: differences go across the seam.
    found = frames(motions)
    np.testing.assert_allclose(found["joint_positions"][[0, 10], 0], [0.0, 1.0], atol=1e-6)
    seam = np.array([0.1 - 1.0, 0.0 - 0.9]) / 0.1
    np.testing.assert_allclose(found["joint_velocities"][[0, 10], 0], seam, atol=1e-5)
    np.testing.assert_allclose(found["joint_velocities"][[0, 10], 1], 2 * seam, atol=1e-5)


def test_durations_of_frames_may_differ(tmp_path: Path) -> None:
    path = deepmimic(tmp_path / "walk.txt", loop="none")
    content = json.loads(path.read_text())
    for number, frame in enumerate(content["Frames"]):
        frame[0] = 0.05 if number < 5 else 0.1
        frame[1] = 0.05 * number if number < 5 else 0.25 + 0.1 * (number - 5)
    path.write_text(json.dumps(content))
    found = frames(load(path, step=0.01, up="y"))
    np.testing.assert_allclose(found["root_position"][:, 0], np.arange(76) * 0.01, atol=1e-6)
    np.testing.assert_allclose(found["root_linear_velocity"][:, 0], 1.0, atol=1e-5)


def test_frames_of_an_unknown_width_are_told_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "arm.txt"
    rows = [[0.1, 0, 0, 1, 1, 0, 0, 0, *turned(np.array([0.1 * n]), np.eye(3)[2])[0], 0.3 * n] for n in range(5)]
    path.write_text(json.dumps({"Loop": "none", "Frames": rows}))
    with pytest.raises(DataError, match=r"whose frames they are is not known: got 13 numbers, expected 44 or 20"):
        load(path)
    motions = load(path, step=0.1, layout={"shoulder": 4, "elbow": 1}, joints=["shoulder.z", "elbow"])
    np.testing.assert_allclose(frames(motions)["joint_positions"], np.outer(np.arange(5), [0.1, 0.3]), atol=1e-6)
    with pytest.raises(DataError, match=r"frames of another width than the layout: got 13 numbers, expected 14"):
        load(path, layout={"shoulder": 4, "elbow": 1, "wrist": 1})


@pytest.mark.skipif(find_spec("pybullet_data") is None, reason="DeepMimic's own clips are inside pybullet's wheel")
def test_deepmimics_own_clips_are_read() -> None:
    spec = find_spec("pybullet_data")
    assert spec is not None
    folder = Path(next(iter(spec.submodule_search_locations or []))) / "data" / "motions"
    motions = load(folder, up="y", clips={"laikago*": {"weight": 0}}, joints=["right_knee", "chest.y"])
    assert len(motions.clips) == 15
    walk = load(folder / "humanoid3d_walk.txt", up="y", joints=["right_knee", "chest.y"], mirror=True)
    windows = walk.windows(["local_linear_velocity", "gravity", "root_height", "joint_positions"], 1)
    drawn = windows.draw(2000, torch.Generator().manual_seed(0))[:, 0]
    assert 0.8 < float(drawn[:, 0].mean()) < 1.3, "it walks forward"
    assert float(drawn[:, 5].max()) < -0.95, "upright"
    assert 0.8 < float(drawn[:, 6].min()) < float(drawn[:, 6].max()) < 0.95
    legs = load(folder / "laikago_walk.txt", quaternions="xyzw")
    assert legs.channels["joint_positions"][:3] == ("FR_hip", "FR_upper_leg", "FR_lower_leg")
    assert float(frames(legs)["root_height"].min()) > 0.4


def write_table(path: Path, header: str, rows: NDArray[np.float64], comma: str = ",") -> Path:
    lines = [header.replace(",", comma), *(comma.join(map(repr, row)) for row in rows.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_tables_of_joint_positions(tmp_path: Path) -> None:
    times = np.arange(31) / 30
    rotation = turned(times, np.array([0.0, 0.0, 1.0]))
    columns = np.column_stack([times + 7.0, np.outer(times, SPEED[:2]), 0 * times + 0.8, rotation, 0.5 * times, -times])
    header = "time,root_x,root_y,root_z,root_qw,root_qx,root_qy,root_qz,hip,knee"
    motions = load(write_table(tmp_path / "walk.csv", header, columns), step=1 / 30)
    assert motions.channels["joint_positions"] == ("hip", "knee")
    found = frames(motions)
    np.testing.assert_allclose(found["joint_positions"], np.outer(times, [0.5, -1.0]), atol=1e-6)
    np.testing.assert_allclose(found["root_linear_velocity"], np.tile(SPEED, (31, 1)), atol=1e-5)
    np.testing.assert_allclose(found["root_angular_velocity"][:, 2], 1.0, atol=1e-5)
    other = frames(load(tmp_path / "walk.csv", step=1 / 30, quaternions="xyzw"))
    assert torch.equal(other["root_rotation"], found["root_rotation"]), "columns have names, not an order"
    plain = write_table(tmp_path / "plain.tsv", "frame,hip,knee", columns[:, [0, 8, 9]], "\t")
    with pytest.raises(DataError, match=r"clip 'plain.tsv': says nothing of frames per second. Say fps="):
        load(plain)
    assert torch.equal(frames(load(plain, fps=30, step=1 / 30))["joint_positions"], found["joint_positions"])
    halved = columns[:, [0, 8, 9, 8, 9]]
    told = write_table(tmp_path / "told.csv", "time,hip,knee,hip_vel,knee_vel", halved)
    np.testing.assert_allclose(frames(load(told, step=1 / 30))["joint_velocities"], halved[:, 3:], atol=1e-6)


def test_tables_that_are_wrong_are_told(tmp_path: Path) -> None:
    rows = np.column_stack([np.arange(4) / 10, np.zeros((4, 3))])
    cases = {
        "half": ("time,root_x,root_z,knee", rows, r"a root position without y"),
        "some": ("time,hip,hip_vel,knee", rows, r"some joints have a velocity and some have none: got none of knee"),
        "back": ("time,a,b,c", rows[[0, 2, 1, 3]], r"frame 2: time does not go on"),
        "twice": ("time,a,a,c", rows, r"columns of one name: got a"),
        "nan": ("time,a,b,c", np.where(rows == 0.2, math.nan, rows), r"frame 2"),
    }
    for name, (header, table, sentence) in cases.items():
        path = write_table(tmp_path / f"{name}.csv", header, table)
        with pytest.raises(DataError, match=rf"clip '{name}.csv'.*{sentence}"):
            load(path)
