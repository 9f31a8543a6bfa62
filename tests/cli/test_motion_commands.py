"""`understudy motion inspect`, `check` and `pack`, as a shell sees them."""

import json
from pathlib import Path

import pytest
from command_line import complaint, understudy
from terminals import shown, words_of

from motion_makers import JOINTS, round_walk, straight_walk, write_clip
from understudy.data.motions import MotionSettings, load_motions
from understudy.data.stores.store import write_store
from worlds import random_dataset, real_data


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    folder = tmp_path / "clips"
    folder.mkdir()
    write_clip(folder / "straight_ahead_and_turning.npz", straight_walk())
    write_clip(folder / "round.npz", round_walk())
    return folder


def test_inspect(clips: Path) -> None:
    spoken = understudy("motion", "inspect", clips)
    assert (spoken.code, spoken.err) == (0, "")
    lines = spoken.out.splitlines()
    assert lines[:2] == ["clips  (clips)", "2 clips, 121 frames, 2.02 s"]
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["round"][:5] == ["round", "60", "60", "1.00", "1.52"]
    assert rows["waist_yaw"] == ["waist_yaw", "-1.00", "1.00", "6.3"]
    assert set(JOINTS) <= rows.keys()
    at_step = understudy("motion", "inspect", clips, "--step", "0.02", "joints=[waist_yaw]", "loop=true").out
    assert "100 frames" in at_step or "101 frames" in at_step
    assert "left_hip_roll" not in at_step


def test_inspect_for_machines_and_as_a_picture(clips: Path, tmp_path: Path) -> None:
    told = json.loads(understudy("motion", "inspect", clips, "--json").out)
    assert [clip["name"] for clip in told["clips"]] == ["round", "straight_ahead_and_turning"]
    assert told["clips"][1]["frames"] == 61
    assert told["clips"][1]["speed"] == pytest.approx(1.5207, abs=1e-3)
    assert told["joints"]["waist_yaw"]["high"] == pytest.approx(1.0, abs=0.01)
    assert told["channels"]["root_rotation"] == ["w", "x", "y", "z"]
    write_store(random_dataset(count=2, steps=6), tmp_path / "store")
    recorded = json.loads(understudy("motion", "inspect", tmp_path / "store", "--json").out)
    assert recorded["seconds"] is None
    for number, path in enumerate((clips, tmp_path / "store")):
        picture = tmp_path / f"{number}.png"
        spoken = understudy("motion", "inspect", path, "--plot", picture)
        assert f"drawn: {picture}" in spoken.out.replace("\n", "")
        assert picture.stat().st_size > 10_000
    assert "expected .png" in complaint("motion", "inspect", clips, "--plot", "x.gif", code=1)


def test_check_passes_fails_and_refuses(clips: Path) -> None:
    spoken = understudy("motion", "check", clips, "--step", "0.02")
    assert spoken.code == 0, spoken
    assert spoken.out.splitlines()[-1] == "PASS: 0 errors, 0 warnings"
    spoken = understudy("motion", "check", clips, "--step", "0.02", "--limit", "waist*=-0.5:0.5", "--window", "70")
    assert spoken.code == 1
    assert "round.npz', frame" in spoken.out
    assert "FAIL: 2 errors, 0 warnings" in spoken.out
    told = json.loads(understudy("motion", "check", clips, "--window", "70", "--step", "0.02", "--json").out)
    assert told["passed"] is False
    assert told["findings"][0]["kind"] == "refused"
    assert "JOINT=LOW:HIGH" in complaint("motion", "check", clips, "--limit", "waist", code=2)
    assert "Did you mean 'joints'" in complaint("motion", "check", clips, "joint=[a]", code=2)
    assert "no such file" in complaint("motion", "inspect", "nowhere.npz", code=1)


def test_pack(clips: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    spoken = understudy("motion", "pack", clips, "--step", "0.02", "--out", packed, "mirror=true", "loop=true")
    assert spoken.code == 0, spoken
    motions = load_motions(MotionSettings(path=str(packed)))
    assert f"4 clips, {motions.frames} frames written to {packed}" in spoken.out
    assert motions.fingerprint in spoken.out
    assert "(packed)" in understudy("motion", "inspect", packed).out
    assert understudy("motion", "check", packed).code == 0
    assert "already exists" in complaint("motion", "pack", clips, "--step", "0.02", "--out", packed, code=1)
    assert "--step: missing" in complaint("motion", "pack", clips, "--out", tmp_path / "x", code=2)
    few = understudy(
        "motion", "pack", clips, "--step", "0.02", "--out", tmp_path / "few", "--channels", "gravity", "-q"
    )
    assert (few.code, few.out) == (0, "")
    assert set(load_motions(MotionSettings(path=str(tmp_path / "few"))).channels) >= {"gravity"}


def test_real_clips_fit_one_screen() -> None:
    for name in ("G1_walk", "humanoid_walk"):
        spoken = understudy("motion", "inspect", real_data(f"motions/{name}.npz"))
        assert spoken.code == 0
        lines = spoken.out.splitlines()
        assert len(lines) <= 45
        assert max(map(len, lines)) <= 100


def test_screens_of_any_width_are_whole(clips: Path) -> None:
    commands = [["motion", word, str(clips), "--step", "0.02"] for word in ("inspect", "check")]
    commands += [["motion", "check", str(clips), "--limit", "*=-0.1:0.1", "loop=true"]]
    known = words_of(shown(4000, *commands))
    for width in (60, 80):
        lines = shown(width, *commands)
        assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []
        assert words_of(lines) <= known
