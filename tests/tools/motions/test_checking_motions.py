"""What `motion check` finds: each fault once, by clip and frame, with what mends it; and nothing in sound clips."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motion_makers import TURN, round_walk, straight_walk, turned, write_clip
from understudy.core.errors import ConfigError
from understudy.data.motions import MotionSettings
from understudy.data.stores.store import write_store
from understudy.tools.motions.check import MotionReport, check_motions
from worlds import random_dataset, real_data


def swaying(frames: int = 90) -> dict[str, Any]:
    """A walk whose root sways, with bodies that move with it and all velocities told."""
    clip = straight_walk(frames)
    times = np.arange(frames) / 60
    root, sway = clip["body_positions"][:, 0], np.sin(6 * times)
    clip["body_rotations"] = np.repeat(turned(0.5 * sway, TURN)[:, None], 3, 1)
    axis = TURN / np.linalg.norm(TURN)
    speed = (0.5 * 6 * np.cos(6 * times))[:, None] * axis
    clip["dof_positions"] = np.sin(5 * times[:, None] + np.arange(5))
    offsets = np.array([[0, 0, 0], [0.1, 0.2, -0.3], [0.1, -0.2, -0.3]])
    w, u = clip["body_rotations"][..., :1], clip["body_rotations"][..., 1:]
    turn = 2 * np.cross(u, offsets)
    clip["body_positions"] = root[:, None] + offsets + w * turn + np.cross(u, turn)
    return clip | {
        "dof_velocities": 5 * np.cos(5 * times[:, None] + np.arange(5)),
        "body_angular_velocities": np.repeat(speed[:, None], 3, 1),
        "body_linear_velocities": np.gradient(clip["body_positions"], 1 / 60, axis=0),
    }


def check(path: Path, *, limits: Any = None, window: int = 2, **settings: object) -> MotionReport:
    return check_motions(MotionSettings.parse({"path": str(path), **settings}), limits=limits, window=window)


def kinds(report: MotionReport) -> list[str]:
    return [f"{finding.level} {finding.kind}" for finding in report.findings]


def test_a_sound_clip_has_nothing_to_complain_about(tmp_path: Path) -> None:
    write_clip(tmp_path / "walk.npz", swaying())
    report = check(tmp_path / "walk.npz", step=0.02)
    assert kinds(report) == []
    assert report.passed
    assert (report.clips, report.frames) == (1, 75)
    write_clip(tmp_path / "bare.npz", round_walk())
    assert kinds(check(tmp_path / "bare.npz", step=0.02, loop=True)) == []
    assert kinds(check(tmp_path)) == ["note not-resampled"]


def spoilt(**changes: Any) -> dict[str, Any]:
    return swaying() | changes


def with_number(name: str, place: tuple[int | slice, ...], value: float) -> dict[str, Any]:
    clip = swaying()
    clip[name] = clip[name].copy()
    clip[name][place] = value
    return clip


def with_jump() -> dict[str, Any]:
    clip = swaying()
    clip["dof_positions"][40:, 3] += 1.5
    return {name: values for name, values in clip.items() if name != "dof_velocities"}


def round_angle() -> dict[str, Any]:
    clip = straight_walk(90)
    clip["dof_positions"][:, 1] = np.mod(np.arange(90) * 0.1 + 0.05, 2 * np.pi)
    return clip


def flipped() -> dict[str, Any]:
    clip = swaying()
    clip["body_rotations"][30:, 1] *= -1
    return clip


def twice() -> dict[str, Any]:
    clip = swaying()
    return {name: np.repeat(values[::2], 2, 0) if values.ndim > 1 else values for name, values in clip.items()}


def lying() -> dict[str, Any]:
    clip = straight_walk()
    clip["body_positions"] = clip["body_positions"][..., [0, 2, 1]] * [1.0, 1.0, 0.1]
    return clip


FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "nan": (
        with_number("body_positions", (7, 1, 2), np.nan),
        {},
        "error not-finite",
        r"frame 7, body_positions, left_foot.z: not finite: got nan",
    ),
    "norm": (
        with_number("body_rotations", (9, 2, slice(None)), 0.0),
        {},
        "error quaternion-norm",
        r"frame 9, body_rotations, right_foot: .* got norm 0, expected 1",
    ),
    "loose": (
        spoilt(body_rotations=swaying()["body_rotations"] * 1.1),
        {},
        "warning quaternion-norm",
        r"got norm 1.1, expected 1\. \d+ quaternions",
    ),
    "fps": (
        spoilt(fps=np.array(120.0)),
        {},
        "error fps",
        r"its velocities contradict its frames per second: got 120, expected 60",
    ),
    "order": (
        spoilt(body_rotations=np.roll(swaying()["body_rotations"], -1, -1)),
        {},
        "error quaternion-order",
        r"another order than wxyz: root_angular_velocity fit",
    ),
    "bodies": (
        {
            name: values
            for name, values in spoilt(body_rotations=np.roll(swaying()["body_rotations"], -1, -1)).items()
            if name != "body_angular_velocities"
        },
        {},
        "error quaternion-order",
        r"bodies move with the root only if",
    ),
    "read": (swaying(), {"quaternions": "xyzw"}, "error quaternion-order", r"another order than xyzw"),
    "jump": (with_jump(), {}, "warning jump", r"frame 40, joint_positions, right_hip_roll: jumps by 1\.\d+"),
    "round": (round_angle(), {}, "warning jump", r"frame 63, joint_positions, left_hip_roll: jumps by 6\.\d+"),
    "flips": (flipped(), {}, "note sign-flips", r"frame 30, body_rotations, left_foot: the sign of a quaternion"),
    "seam": (
        straight_walk() | {"dof_positions": straight_walk()["dof_positions"] * 5},
        {"loop": True},
        "warning loop-seam",
        r"does not close: waist_yaw is 2\.5 rad",
    ),
    "twice": (
        twice(),
        {},
        "error repeated-frames",
        r"each frame is there 2 times, as if it had been taken at 30 fps and written at 60",
    ),
    "velocities": (
        spoilt(dof_velocities=np.random.default_rng(0).standard_normal((90, 5))),
        {},
        "warning velocities",
        r"joint_velocities: not the velocities of its positions",
    ),
    "up": (lying(), {}, "warning up-axis", r"y seems to be up, not z"),
    "limit": (
        swaying(),
        {"limits": {"*roll": (-0.5, 0.5)}},
        "error joint-limit",
        r"left_hip_roll: beyond its limit: got .*expected -0.5 to 0.5",
    ),
    "short": (
        spoilt(),
        {"step": 0.02, "window": 90},
        "error refused",
        r"clip 'short': shorter than a window: got 75 frames, expected at least 90",
    ),
    "joints": (spoilt(), {"step": 0.02, "joints": ["knee"]}, "error refused", r"joint 'knee': no such joint"),
    "names": (spoilt(dof_names=np.array(["a"])), {}, "error unreadable", r"joint_positions: wrong shape"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_by_clip_and_frame(tmp_path: Path, name: str) -> None:
    clip, settings, kind, sentence = FAULTS[name]
    report = check(write_clip(tmp_path / f"{name}.npz", clip), **settings)
    found = [finding for finding in report.findings if f"{finding.level} {finding.kind}" == kind]
    assert found, kinds(report)
    assert report.passed == (not kind.startswith("error"))

    assert re.search(sentence, found[0].message), found[0].message
    assert f"clip '{name}" in found[0].message
    json.dumps(report.to_json(), allow_nan=False)


def test_what_is_said_to_mend_it_does(tmp_path: Path) -> None:
    for name, fix in (
        ("fps", {"fps": 60}),
        ("order", {"quaternions": "xyzw"}),
        ("twice", {"stride": 2, "velocities": "differences"}),
        ("velocities", {"velocities": "differences"}),
        ("up", {"up": "y"}),
    ):
        clip, _, kind, _ = FAULTS[name]
        path = write_clip(tmp_path / f"{name}.npz", clip)
        told = next(finding for finding in check(path).findings if f"{finding.level} {finding.kind}" == kind)
        assert dict(told.settings).items() <= fix.items(), told
        assert kind not in kinds(check(path, **fix))


def test_a_round_that_turns_does_not_close(tmp_path: Path) -> None:
    clip = straight_walk() | {"dof_positions": np.zeros((61, 5))}
    path = write_clip(tmp_path / "turning.npz", clip)
    assert kinds(check(path)) == ["note not-resampled"]
    found = check(path, loop=True).findings[0]
    assert "does not close: the root's rotation is 1.3 rad from its first frame" in found.message


def test_where_a_clip_comes_round_is_told(tmp_path: Path) -> None:
    """One and a half rounds of forty frames: some forty of them close."""
    clip, phase = straight_walk(60), 2 * np.pi * np.arange(60) / 40
    clip["dof_positions"] = np.sin(phase[:, None] + np.arange(5))
    clip["body_rotations"] = np.tile([1.0, 0.0, 0.0, 0.0], (60, 3, 1))
    path = write_clip(tmp_path / "walk.npz", clip)
    found = check(path, loop=True).findings[0]
    assert found.kind == "loop-seam"
    cut = found.settings["clips"]["walk"]
    assert cut["end"] - cut["start"] == pytest.approx(39 / 60, abs=1e-3)
    again = check(path, loop=True, step=1 / 60, clips=found.settings["clips"])
    assert kinds(again) == []
    assert again.frames == 40


def test_limits_are_of_joints_that_there_are(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "walk.npz", swaying())
    with pytest.raises(ConfigError, match=r"limit of 'elbow': matches no joint. There are: left_hip_pitch"):
        check(path, limits={"elbow": (-1.0, 1.0)})


def test_an_angle_that_goes_round_is_to_be_unwrapped(tmp_path: Path) -> None:
    advice = {
        name: next(one for one in check(write_clip(tmp_path / f"{name}.npz", FAULTS[name][0])).findings).advice
        for name in ("round", "jump")
    }
    assert "unwrap" in advice["round"]
    assert "Cut the clip" in advice["jump"]


def test_a_broken_clip_does_not_hide_the_others(tmp_path: Path) -> None:
    write_clip(tmp_path / "a.npz", swaying())
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 nothing")
    write_clip(tmp_path / "c.npz", with_number("dof_positions", (3, 0), np.inf))
    report = check(tmp_path)
    assert kinds(report) == ["error unreadable", "error not-finite"]
    with pytest.raises(ConfigError, match="matches no clip"):
        check(tmp_path / "a.npz", step=0.02, clips={"run": {"weight": 1}})


def test_recorded_datasets_and_packed_clips_are_checked_as_they_are_used(tmp_path: Path) -> None:
    write_store(random_dataset(count=3, steps=5), tmp_path / "store")
    assert kinds(check(tmp_path / "store")) == []
    assert kinds(check(tmp_path / "store", window=9)) == ["error refused"]
    assert check(tmp_path / "store").clips == 3


def test_real_clips() -> None:
    for name in ("G1_walk", "humanoid_walk", "humanoid_run"):
        path = real_data(f"motions/{name}.npz")
        found = kinds(check(path, step=1 / 30))
        assert ("error repeated-frames" in found) == name.startswith("humanoid")
        assert check(path, fps=30).findings[0].kind in ("fps", "repeated-frames")
        assert "error quaternion-order" in kinds(check(path, quaternions="xyzw"))
    mended = check(real_data("motions/humanoid_walk.npz"), step=1 / 30, stride=2, velocities="differences")
    assert kinds(mended) == []
