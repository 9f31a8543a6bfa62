"""How fast windows of motions are drawn, and how much memory that takes.

    python benchmarks/motion_speed.py                      a thousand clips of 10,000 frames; and a hundred of 1,000
    python benchmarks/motion_speed.py --frames 1000000     fewer frames

Packs synthetic clips of a robot with 12 joints into a temporary folder, opens it as a run does (every file is digested
once), and draws windows of two frames of a Go1's style: joint positions and velocities, gravity, local velocities.
Seconds are those of one core.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from understudy.data.motions import MotionSet, MotionSettings, load_motions, packed
from understudy.data.motions.clip import WXYZ, XYZ, Channel
from understudy.data.motions.packed import pack_clips
from understudy.data.motions.resampling import Resampled
from understudy.data.motions.rotations import from_rotation_vector

CHANNELS = ["joint_positions", "joint_velocities", "gravity", "local_linear_velocity", "local_angular_velocity"]
JOINTS = tuple(f"joint_{number}" for number in range(12))


def clips(count: int, frames: int) -> Iterator[Resampled]:
    rng = torch.Generator().manual_seed(0)
    for number in range(count):
        channels = {
            "joint_positions": Channel(torch.randn(frames, 12, generator=rng), JOINTS),
            "joint_velocities": Channel(torch.randn(frames, 12, generator=rng), JOINTS),
            "root_position": Channel(torch.randn(frames, 3, generator=rng), XYZ, "place"),
            "root_rotation": Channel(from_rotation_vector(torch.randn(frames, 3, generator=rng)), WXYZ, "rotation"),
            "root_linear_velocity": Channel(torch.randn(frames, 3, generator=rng), XYZ),
            "root_angular_velocity": Channel(torch.randn(frames, 3, generator=rng), XYZ),
        }
        yield Resampled(f"clip {number}", channels, number % 2 == 0, torch.zeros(3), 1.0)


def measure(motions: MotionSet, frames: int, batch: int, seconds: float) -> None:
    rng = torch.Generator().manual_seed(1)
    windows = motions.windows(CHANNELS, frames)
    windows.draw(batch, rng)
    drawn, started = 0, time.process_time()
    while (spent := time.process_time() - started) < seconds:
        windows.draw(batch, rng)
        drawn += batch * frames
    print(
        f"  windows of {frames} × {windows.size}, {batch} at once: {drawn / spent / 1e6:6.2f} million frames/s, "
        f"{resident():,.0f} MB resident"
    )


def resident() -> float:
    """Megabytes of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of computing, for each line")
    parser.add_argument("--folder", type=Path, default=None, help="where the packed clips are written; temporary")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="understudy-motions-", dir=given.folder))
    try:
        started = time.process_time()
        path = pack_clips(clips(given.clips, given.frames // given.clips), folder / "packed", 0.02, {})
        size = sum(file.stat().st_size for file in path.iterdir()) / 1e9
        spent = time.process_time() - started
        print(f"{given.clips} clips, {given.frames:,} frames, {size:.2f} GB: made and packed in {spent:.1f} s")
        for how, budget in (("read from the file", packed.RESIDENT_BUDGET), ("mapped, whatever it takes", 1 << 40)):
            packed.RESIDENT_BUDGET = budget
            started = time.process_time()
            motions = load_motions(MotionSettings(path=str(path)))
            spent = time.process_time() - started
            print(f"{how}: opened and compared in {spent:.1f} s, {resident():,.0f} MB resident")
            for window, batch in ((2, 4096), (2, 256), (10, 1024)):
                measure(motions, window, batch, given.seconds)
        pack_clips(clips(100, 1000), folder / "few", 0.02, {})
        print("100 clips, 100,000 frames, in memory")
        for window, batch in ((2, 4096), (2, 256), (10, 1024)):
            measure(load_motions(MotionSettings(path=str(folder / "few"))), window, batch, given.seconds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
