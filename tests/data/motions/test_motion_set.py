"""Windows and moments: what is drawn, how often, and that nothing leaves its clip."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motion_makers import JOINTS, straight_walk, write_clip
from understudy.core.errors import ConfigError, DataError
from understudy.core.motion import Motions, MotionWindows
from understudy.data.motions import MotionSet, MotionSettings, load_motions
from understudy.data.stores.store import write_store
from worlds import random_dataset, real_data


def load(path: Path, step: float | None = 1 / 60, segments: Any = None, **settings: object) -> MotionSet:
    said = {"path": str(path), **({} if step is None else {"step": step}), **settings}
    return load_motions(MotionSettings.parse(said), segments or {})


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(path: Path, frames: int, first: int) -> Path:
    """A clip whose first joint counts its frames."""
    clip = straight_walk(frames)
    clip["dof_positions"][:, 0] = first + np.arange(frames)
    return write_clip(path, clip)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, frames, first in (("long", 40, 0), ("short", 10, 1000), ("never", 20, 2000)):
        numbered(tmp_path / f"{name}.npz", frames, first)
    return tmp_path


def test_windows_are_drawn_by_weight_and_never_leave_their_clip(folder: Path) -> None:
    motions: Motions = load(folder, clips={"short": {"weight": 3}, "never": {"weight": 0}})
    windows: MotionWindows = motions.windows(["joint_positions"], 4)
    assert windows.count == 37 + 7
    assert windows.size == len(JOINTS)
    drawn = windows.draw(60_000, rng())[:, :, 0]
    assert drawn.shape == (60_000, 4)
    assert bool((drawn.diff(dim=1) == 1).all())
    found, counts = np.unique(drawn[:, 0].numpy(), return_counts=True)
    assert found.tolist() == [*range(37), *range(1000, 1007)]
    expected = np.array([1.0] * 37 + [3.0] * 7) / (37 + 21) * 60_000
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 43 + 5 * np.sqrt(2 * 43), "as often as their weights say"


def test_a_looped_clip_has_a_window_from_every_frame(tmp_path: Path) -> None:
    motions = load(numbered(tmp_path / "round.npz", 10, 0), loop=True)
    windows = motions.windows(["joint_positions", "root_position"], 25)
    assert windows.count == 10
    drawn = windows.draw(500, rng())
    frames = drawn[:, :, 0]
    assert set(frames[:, 0].tolist()) == set(range(10))
    assert bool((frames == (frames[:, :1] + torch.arange(25)) % 10).all())
    torch.testing.assert_close(drawn[:, :, len(JOINTS)].diff(dim=1), torch.full((500, 24), 1.5 / 60), atol=1e-5, rtol=0)


def test_moments_are_uniform_over_what_can_be_shown(folder: Path) -> None:
    motions = load(folder, clips={"short": {"weight": 2}, "never": {"weight": 0}})
    clip, time = motions.draw_moments(50_000, rng(3))
    number = {name: place for place, name in enumerate(motions.clips)}
    share = float((clip == number["short"]).double().mean())
    assert share == pytest.approx(2 * 9 / (39 + 2 * 9), abs=0.01)
    assert "never" not in number, "it is not even read"
    for name, last in (("long", 39), ("short", 9)):
        times = time[clip == number[name]]
        assert 0 <= float(times.min()) < 0.05 * last
        assert 0.95 * last < float(times.max()) <= last
        assert float(times.mean()) == pytest.approx(last / 2, rel=0.03)


def test_the_same_generator_draws_the_same_and_frames_are_those_at_their_moments(folder: Path) -> None:
    motions = load(folder)
    channels = ("joint_positions", "gravity", "local_linear_velocity", "body_positions_in_heading")
    windows = motions.windows(channels, 2)
    assert torch.equal(windows.draw(100, rng(5)), windows.draw(100, rng(5)))
    every = torch.cat([torch.arange(int(length)) for length in motions.lengths])
    clip = torch.repeat_interleave(torch.arange(3), motions.lengths)
    rows = torch.cat(list(motions.at(channels, clip, every).values()), 1)
    known = {tuple(row) for row in rows.numpy().round(4).tolist()}
    drawn = windows.draw(200, rng()).flatten(0, 1)
    assert all(tuple(row) in known for row in drawn.numpy().round(4).tolist())


def test_large_sets_are_read_where_they_lie_with_the_same_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = ["root_position", "gravity", "joint_velocities"]
    motions = load(folder, loop=True)
    beside = motions.windows(channels, 3).draw(300, rng())
    monkeypatch.setattr("understudy.data.motions.motion_set.JOINED_BUDGET", 0)
    assert torch.equal(motions.windows(channels, 3).draw(300, rng()), beside)


def test_a_recorded_dataset_gives_its_observations(tmp_path: Path) -> None:
    dataset = random_dataset(count=5, steps=12)
    write_store(dataset, tmp_path / "store")
    segments = {"state": {"position": (0, 2), "speed": (2, 3)}, "elsewhere": {"x": (0, 1)}}
    motions = load(tmp_path / "store", None, segments)
    assert set(motions.channels) == {"state", "state.position", "state.speed"}
    assert motions.clips[0] == "episode 0"
    assert np.isnan(motions.step)
    assert motions.lengths.tolist() == [13] * 5
    drawn = motions.windows(["state", "state.speed"], 3).draw(2000, rng())
    assert torch.equal(drawn[..., 2], drawn[..., 3])
    stretches = {
        tuple(dataset.episode(number).observations["state"][start : start + 3].flatten().tolist())
        for number in range(5)
        for start in range(11)
    }
    assert {tuple(window.flatten().tolist()) for window in drawn[..., :3]} == stretches


def test_a_large_recorded_dataset_is_read_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_store(random_dataset(count=5, steps=12), tmp_path / "store")
    said = {"path": str(tmp_path / "store"), "loop": True}
    plain = load_motions(MotionSettings.parse(said)).windows(["state"], 7).draw(200, rng())
    monkeypatch.setattr("understudy.data.motions.motion_set.JOINED_BUDGET", 0)
    monkeypatch.setattr("understudy.data.motions.recorded.RESIDENT_BUDGET", 0)
    motions = load_motions(MotionSettings.parse(said))
    assert torch.equal(motions.windows(["state"], 7).draw(200, rng()), plain)
    with pytest.raises(ConfigError, match=r"motions.mirror: is for clips of joints and bodies"):
        load_motions(MotionSettings.parse({**said, "mirror": True}))


def test_episodes_too_short_for_a_window_have_none(tmp_path: Path) -> None:
    short, long = random_dataset(count=1, steps=3), random_dataset(count=1, steps=9, seed=1)
    episodes = [short.episode(0), long.episode(0)]
    write_store(type(short).from_episodes(episodes, short.spec.action), tmp_path / "store")
    motions = load(tmp_path / "store", None)
    assert motions.windows(["state"], 6).count == 5
    with pytest.raises(DataError, match=r"'episode 0', 'episode 1': shorter than a window: got 4 frames"):
        motions.windows(["state"], 11)


def test_the_fingerprint_is_of_the_content(folder: Path, tmp_path: Path) -> None:
    first = load(folder)
    assert load(folder, fingerprint=first.fingerprint).fingerprint == first.fingerprint
    assert load(folder, clips={"long": {"weight": 2}}).fingerprint == first.fingerprint
    others = [load(folder, 0.02), load(folder, loop=True), load(folder, joints=JOINTS[:2]), load(folder, up="y")]
    assert len({first.fingerprint, *(one.fingerprint for one in others)}) == 5
    numbered(folder / "long.npz", 40, 1)
    with pytest.raises(DataError, match=r"motions.fingerprint: .* holds other motions than this run was started with"):
        load(folder, fingerprint=first.fingerprint)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"clips": {"jump*": {"weight": 2}}}, r"motions.clips.jump\*: matches no clip"),
    ({"clips": {"*": {"weight": 0}}}, r"motions.clips: all weights are 0"),
    ({"clips": {"long": {"weight": -1}}}, r"motions\.clips|clips.long.weight"),
    (
        {"joints": ["left_hip_pich"]},
        r"clip '.*', joint 'left_hip_pich': no such joint in the clip. Did you mean 'left_hip_pitch'",
    ),
    ({"joint_offsets": {"knee": 0.1}}, r"motions.joint_offsets.knee: matches no joint"),
    ({"root": "torso"}, r"body 'torso': no such body"),
    ({"clips": {"long": {"start": 5}}}, r"clip 'long.npz': nothing is left of it"),
]


def test_mistakes_are_told_by_name(folder: Path) -> None:
    for settings, sentence in MISTAKES:
        with pytest.raises((ConfigError, DataError), match=sentence):
            load(folder, **settings)
    with pytest.raises(ConfigError, match=r"motions\.step: missing"):
        load(folder, None)
    motions = load(folder)
    with pytest.raises(DataError, match=r"clip 'short': shorter than a window: got 10 frames, expected at least 11"):
        motions.windows(["gravity"], 11)
    with pytest.raises(DataError, match=r"channel 'gravty': no such channel. Did you mean 'gravity'.*root_height"):
        motions.windows(["gravty"], 2)


def test_broken_clips_are_told_with_clip_and_frame(tmp_path: Path) -> None:
    clip = straight_walk()
    broken: dict[str, tuple[dict[str, Any], str]] = {}
    joints, rotations = clip["dof_positions"].copy(), clip["body_rotations"].copy()
    joints[17, 2] = np.nan
    broken["nan"] = {"dof_positions": joints}, r"frame 17, joint_positions, right_hip_pitch: not finite"
    rotations[5, 1] = 0
    broken["norm"] = {"body_rotations": rotations}, r"frame 5, body_rotations of left_foot: a quaternion .* norm 0"
    broken["fps"] = {"fps": np.array(0.0)}, r"no frames per second: got 0"
    broken["silent"] = {"fps": None}, r"says nothing of frames per second"
    broken["shape"] = {"body_positions": np.zeros((61, 2, 3))}, r"body_positions: wrong shape"
    broken["length"] = {"dof_positions": joints[:-1]}, r"different numbers of frames"
    broken["names"] = {"dof_names": np.array(["a"] * 5)}, r"joints of one name: got a"
    for name, (changes, sentence) in broken.items():
        path = write_clip(tmp_path / f"{name}.npz", clip, **changes)
        with pytest.raises(DataError, match=rf"clip '{name}.npz'.*{sentence}"):
            load(path)
    assert load(tmp_path / "silent.npz", fps=60).frames == 61


def test_real_clips_are_read(tmp_path: Path) -> None:
    for name, frames, joints, bodies in (("G1_walk", 399, 29, 11), ("humanoid_walk", 154, 28, 15)):
        motions = load(real_data(f"motions/{name}.npz"))
        assert motions.frames == frames
        assert len(motions.channels["joint_positions"]) == joints
        assert len(motions.channels["body_positions"]) == 3 * bodies
        speeds = motions.windows(["local_linear_velocity", "gravity", "root_height"], 1).draw(500, rng())[:, 0]
        assert 0.3 < float(speeds[:, 0].mean()) < 2.5, "they walk forward"
        assert float(speeds[:, 5].mean()) < -0.9, "upright"
        assert 0.5 < float(speeds[:, 6].min()) < float(speeds[:, 6].max()) < 1.1


def test_a_dataset_in_a_file_is_read_without_its_actions(tmp_path: Path) -> None:
    path = tmp_path / "flat.npz"
    ends = np.array([False, False, True] * 2)
    states = np.arange(12.0).reshape(6, 2)
    np.savez(path, observations=states, actions=np.zeros((6, 1)), rewards=np.zeros(6), terminals=ends)
    motions = load(path, None)
    assert len(motions.clips) == 2
    assert motions.windows(["state"], 2).size == 2
