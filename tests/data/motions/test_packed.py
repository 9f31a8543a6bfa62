"""Packed clips: the same motions as their files, mapped; and whatever is not whole is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motion_makers import JOINTS, round_walk, straight_walk, write_clip
from understudy.core.errors import ConfigError, DataError
from understudy.core.files import read_sealed, seal
from understudy.data.motions import MotionSet, MotionSettings, load_motions, packed
from understudy.data.motions.loading import pack_motions
from understudy.data.stores.store import RESIDENT_BUDGET

CHANNELS = ["joint_positions", "gravity", "root_position", "body_positions_in_root"]


def settings(path: Path, **said: object) -> MotionSettings:
    return MotionSettings.parse({"path": str(path), **said})


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clips").mkdir()
    for number in range(4):
        clip = round_walk(20 + number)
        clip["dof_positions"] = clip["dof_positions"] + number
        write_clip(tmp_path / "clips" / f"walk{number}.npz", clip)
    return tmp_path / "clips"


def pack(folder: Path, **said: Any) -> MotionSet:
    return pack_motions(settings(folder, step=0.02, loop=True, mirror=True, **said), folder.parent / "packed")


def test_packed_clips_are_the_same_motions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load_motions(settings(folder, step=0.02, loop=True, mirror=True))
    same = pack(folder)
    assert same.clips == plain.clips
    assert same.channels == plain.channels
    assert same.step == plain.step
    assert same.fingerprint == plain.fingerprint
    drawn = plain.windows(CHANNELS, 30).draw(500, rng())
    assert torch.equal(same.windows(CHANNELS, 30).draw(500, rng()), drawn)
    moments = plain.draw_moments(50, rng())
    at = plain.at(CHANNELS, *moments)
    # Large ones are not joined in memory but mapped, and larger ones are read from the file, window by window.
    monkeypatch.setattr("understudy.data.motions.motion_set.JOINED_BUDGET", 0)
    for budget in (RESIDENT_BUDGET, 0):
        monkeypatch.setattr(packed, "RESIDENT_BUDGET", budget)
        large = load_motions(settings(folder.parent / "packed"))
        assert torch.equal(large.windows(CHANNELS, 30).draw(500, rng()), drawn)
        assert torch.equal(
            large.windows(CHANNELS[:1], 3).draw(100, rng()), plain.windows(CHANNELS[:1], 3).draw(100, rng())
        )
        for name, values in large.at(CHANNELS, *moments).items():
            assert torch.equal(values, at[name])
        assert large.fingerprint == plain.fingerprint


def test_joints_and_weights_are_chosen_when_it_is_opened(folder: Path) -> None:
    pack(folder)
    said: dict[str, Any] = {"joints": ["waist_yaw", "-left_hip_roll"], "joint_offsets": {"*roll": 0.5}}
    plain = load_motions(settings(folder, step=0.02, loop=True, mirror=True, **said))
    chosen = load_motions(settings(folder.parent / "packed", **said, clips={"walk[12]": {"weight": 0}}))
    assert chosen.channels == plain.channels
    moments = plain.draw_moments(50, rng())
    for name in ("joint_positions", "joint_velocities"):
        torch.testing.assert_close(chosen.at([name], *moments)[name], plain.at([name], *moments)[name])
    assert chosen.weights.tolist() == [1, 1, 0, 0, 0, 0, 1, 1]


def test_only_some_channels_are_packed(folder: Path) -> None:
    motions = pack_motions(settings(folder, step=0.02), folder.parent / "few", ["gravity", "joint_positions"])
    assert set(motions.channels) == {"root_rotation", "joint_positions", "gravity", "heading_free_rotation"}
    with pytest.raises(DataError, match=r"channel 'joint_torques': no such channel"):
        pack_motions(settings(folder, step=0.02), folder.parent / "none", ["joint_torques"])
    assert not (folder.parent / "none").exists()


def test_what_cannot_be_packed_leaves_nothing(folder: Path) -> None:
    write_clip(folder / "walk9.npz", straight_walk(), body_positions=None)
    with pytest.raises(DataError, match=r"clip 'walk9', channel 'body_positions': which the clips before it have"):
        pack(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["clips"]
    write_clip(folder / "walk9.npz", straight_walk(), dof_names=np.array(["a", "b", "c", "d", "e"]))
    with pytest.raises(DataError, match=r"clip 'walk9', channel 'joint_positions': has other components"):
        pack_motions(settings(folder, step=0.02), folder.parent / "packed")
    (folder / "walk9.npz").unlink()
    pack(folder)
    with pytest.raises(DataError, match=r"packed: already exists"):
        pack(folder)
    with pytest.raises(DataError, match=r"only clips are packed"):
        pack_motions(settings(folder.parent / "packed", step=0.02), folder.parent / "again")


def test_what_was_decided_when_packing_is_not_changed_afterwards(folder: Path) -> None:
    pack(folder)
    path = folder.parent / "packed"
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"step": 0.01}, r"motions.step: .*packed at another step: got 0.01, expected 0.02"),
        ({"loop": False}, r"motions.loop: was decided when these clips were packed"),
        ({"mirror": True}, r"motions.mirror: was decided"),
        ({"clips": {"walk1": {"loop": True}}}, r"motions.clips.walk1: of packed clips only the weight"),
        ({"clips": {"run": {"weight": 2}}}, r"motions.clips.run: matches no clip"),
        ({"joints": ["knee"]}, r"joint 'knee': no such joint"),
    ]
    for said, sentence in mistakes:
        with pytest.raises((ConfigError, DataError), match=sentence):
            load_motions(settings(path, **said))
    assert load_motions(settings(path, step=0.02)).channels["joint_positions"] == JOINTS


def test_whatever_was_changed_afterwards_is_told(folder: Path) -> None:
    pack(folder)
    path = folder.parent / "packed"
    frames, card = (path / "frames.npy").read_bytes(), (path / "motions.json").read_bytes()
    cases: list[tuple[bytes, bytes, str]] = [
        (frames[:-4], card, "header or size do not match"),
        (frames[:-1] + bytes([frames[-1] ^ 1]), card, "sha256 differs"),
        (frames, card.replace(b"walk1", b"walk7"), "its seal does not fit"),
        (frames, b"{}", "not a readable store of motions"),
    ]
    for rows, manifest, sentence in cases:
        (path / "frames.npy").write_bytes(rows)
        (path / "motions.json").write_bytes(manifest)
        with pytest.raises(DataError, match=sentence):
            load_motions(settings(path))
    (path / "frames.npy").write_bytes(frames)
    (path / "motions.json").write_bytes(card)
    told = read_sealed(path / "motions.json")
    told["clips"][0]["frames"] = 2**62
    (path / "motions.json").write_bytes(seal(told))
    with pytest.raises(DataError, match="manifest is not readable"):
        load_motions(settings(path))
