"""Converting a large HDF5 file into a native store: how fast beside a plain copy, and in how much memory.

    python benchmarks/convert_memory.py                 # a 2 GB D4RL file, about a minute
    python benchmarks/convert_memory.py --gigabytes 8

The conversion runs in a process of its own through the real command. Disk-bound means: not much slower than reading
the file and writing as many bytes, with a sha256 over them, which is the least a verified copy can do.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

OBSERVATION, ACTION, EPISODE = 17, 6, 1000
ROW_BYTES = 4 * (2 * OBSERVATION + ACTION + 1) + 2
MEMORY_TARGET = 500 << 20


def write_file(path: Path, rows: int) -> None:
    """A D4RL file as D4RL writes them: flat, with timeouts and next_observations."""
    rng = np.random.default_rng(0)
    shapes = {"observations": (OBSERVATION,), "next_observations": (OBSERVATION,), "actions": (ACTION,), "rewards": ()}
    with h5py.File(path, "w") as file:
        columns = {name: file.create_dataset(name, (rows, *shape), np.float32) for name, shape in shapes.items()}
        ends = np.arange(1, rows + 1) % EPISODE == 0
        file["timeouts"], file["terminals"] = ends, np.zeros(rows, bool)
        for first in range(0, rows, 100 * EPISODE):
            part = slice(first, min(first + 100 * EPISODE, rows))
            count = part.stop - part.start
            states = rng.standard_normal((count + 1, OBSERVATION), np.float32)
            columns["observations"][part] = states[:-1]
            columns["next_observations"][part] = states[1:]
            columns["actions"][part] = rng.random((count, ACTION), np.float32) * 2 - 1
            columns["rewards"][part] = rng.random(count, np.float32)


def verified_copy(source: Path, target: Path) -> float:
    """Seconds to read, digest and durably write the same bytes."""
    start, digest = time.perf_counter(), hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as write:
        while piece := read.read(1 << 22):
            digest.update(piece)
            write.write(piece)
        write.flush()
        os.fsync(write.fileno())
    return time.perf_counter() - start


def conversion(source: Path, target: Path) -> tuple[float, int]:
    """Seconds and peak resident bytes of `understudy dataset convert` in its own process."""
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "understudy",
        "dataset",
        "convert",
        str(source),
        str(target),
        "--env",
        "HalfCheetah-v4",
    ]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("the conversion failed")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    wanted = parser.parse_args().gigabytes
    with tempfile.TemporaryDirectory(prefix="understudy-") as folder:
        source = Path(folder) / "flat.hdf5"
        write_file(source, int(wanted * 1e9 / ROW_BYTES) // EPISODE * EPISODE)
        size = source.stat().st_size
        copied = verified_copy(source, Path(folder) / "copy")
        (Path(folder) / "copy").unlink()
        seconds, peak = conversion(source, Path(folder) / "store")
        kept = sum(file.stat().st_size for file in (Path(folder) / "store").iterdir())
    print(f"an HDF5 file of {size / 1e9:.2f} GB into a store of {kept / 1e9:.2f} GB (each observation once)")
    print(f"converted in {seconds:.1f} s, {size / seconds / 1e6:.0f} MB/s; a verified copy takes {copied:.1f} s")
    print(f"peak resident memory {peak / 1e6:.0f} MB: {'PASS' if peak < MEMORY_TARGET else 'FAIL'} (under 524 MB)")


if __name__ == "__main__":
    main()
