"""What a dataset costs in memory, and what it costs to learn from one that does not fit.

    python benchmarks/dataset_memory.py              # about 4 GB on disk, two minutes
    python benchmarks/dataset_memory.py --gigabytes 20

(a) a million rows (17 observations, 6 actions) in memory, against their raw bytes: at most 1.2 times.
(b) IQL on a memory-mapped store, in a child process: peak resident memory above an interpreter that has only
    done its imports, and opening, statistics and updates included, stays under 1 GB; speed beside the same
    updates on a million rows in memory.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from understudy.algorithms.iql import Config, build
from understudy.core.protocols import BuildContext
from understudy.core.spec import Box, Group, Spec
from understudy.data.dataset import Dataset
from understudy.data.episode import Array
from understudy.data.experience import LoggedExperience
from understudy.data.index import EpisodeIndex
from understudy.data.stores.store import FileRows, open_store, write_store
from understudy.sources import SourceInputs, offline

OBSERVATION, ACTION, EPISODE = 17, 6, 1000
ROW_BYTES = 4 * (OBSERVATION + ACTION + 1) + 1
"""Raw: observation, action and reward in float32, one flag."""
SPEC = Spec({"state": Group((OBSERVATION,), "float32")}, Box((-1.0,) * ACTION, (1.0,) * ACTION))
MEMORY_TARGET, RATIO_TARGET = 1 << 30, 1.2
CPU = torch.device("cpu")


def index_of(episodes: int) -> EpisodeIndex:
    ended = np.arange(episodes) % 2 == 0
    lengths = np.full(episodes, EPISODE, np.int64)
    return EpisodeIndex(lengths, ended, ~ended, np.ones(episodes, bool))


def fill(column: Array, seed: int) -> Array:
    """Uniform numbers in [-1, 1), made in pieces."""
    rng = np.random.default_rng(seed)
    for start in range(0, len(column), 1 << 18):
        piece = column[start : start + (1 << 18)]
        piece[...] = rng.random(piece.shape, np.float32) * 2 - 1
        if isinstance(column, np.memmap):
            column.flush()
            column._mmap.madvise(4)  # type: ignore[attr-defined]  # MADV_DONTNEED: written pages need not stay
    return column


def dataset_over(arrays: Iterable[Array], episodes: int, pager: FileRows | None = None) -> Dataset:
    filled = [fill(array, seed) for seed, array in enumerate(arrays)]
    state, action, reward = map(torch.from_numpy, filled)
    return Dataset(SPEC, {"state": state}, action, reward, index_of(episodes), name="benchmark", pager=pager)


def in_memory(episodes: int) -> Dataset:
    rows = episodes * EPISODE
    shapes = [(rows + episodes, OBSERVATION), (rows, ACTION), (rows,)]
    return dataset_over([np.empty(shape, np.float32) for shape in shapes], episodes)


def on_disk(folder: Path, episodes: int) -> Path:
    """A store written by `write_store` from mapped scratch columns: no process ever holds it."""
    rows = episodes * EPISODE
    shapes = {"observation": (rows + episodes, OBSERVATION), "action": (rows, ACTION), "reward": (rows,)}
    scratch = folder / "scratch"
    scratch.mkdir()
    columns = {
        name: np.lib.format.open_memmap(scratch / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in shapes.items()
    }
    pager = FileRows(scratch, columns)
    path = write_store(dataset_over(columns.values(), episodes, pager), folder / "store")
    for file in scratch.iterdir():
        file.unlink()
    return path


def memory_of_this_process(name: str) -> int:
    """VmRSS or VmHWM, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def learn(dataset: Dataset, seconds: float) -> dict[str, float]:
    """Batches and IQL updates per second through the real source and the real algorithm."""
    data = LoggedExperience.of(dataset)
    algorithm = build(Config(), BuildContext.over(data))
    source = offline.build(offline.Config(batch_size=256), SourceInputs.over(data, algorithm))
    speeds = {}
    for name, learning in (("batches", False), ("updates", True)):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            batch = source.next(algorithm.policy)
            if learning:
                algorithm.update(batch)
            count += 1
        speeds[name] = count / (time.perf_counter() - start)
    return speeds


def child(path: str, seconds: float) -> None:
    """Run in a process of its own: `path` is a store, or empty for a million rows in memory."""
    torch.set_num_threads(1)
    learn(in_memory(4), 0.5)  # libraries load lazily; that belongs to the interpreter, not to the data
    base = memory_of_this_process("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    start = time.perf_counter()
    dataset = open_store(Path(path)) if path else in_memory(1000)
    opened = time.perf_counter() - start
    result = learn(dataset, seconds)
    peak = memory_of_this_process("VmHWM") - base
    print(json.dumps({**result, "open": opened, "base": base, "peak": peak}))


def in_child(path: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", path, "--seconds", str(seconds)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the mapped store")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each timing")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the store is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.seconds)
        return

    million = in_memory(1000)
    raw = ROW_BYTES * million.steps
    ratio = million.nbytes / raw
    print(f"(a) a million rows in memory   {million.nbytes / 1e6:8.1f} MB   raw {raw / 1e6:.1f} MB   ratio {ratio:.3f}")
    del million

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        start = time.perf_counter()
        path = on_disk(Path(folder), int(options.gigabytes * 1e9 / (ROW_BYTES * EPISODE)))
        size = sum(file.stat().st_size for file in path.iterdir())
        written = time.perf_counter() - start
        written_peak = memory_of_this_process("VmHWM")
        print(f"(b) a mapped store             {size / 1e9:8.2f} GB   written in {written:.0f} s", end="")
        print(f", peak of the writer {written_peak / 1e6:.0f} MB")
        mapped = in_child(str(path), options.seconds)
    memory = in_child("", options.seconds)
    print(f"{'':24}{'batches/s':>12}{'updates/s':>12}{'peak above base':>18}{'opened in':>12}")
    for name, result in (("mapped store", mapped), ("million rows in memory", memory)):
        peak = f"{result['peak'] / 1e6:.0f} MB"
        print(f"{name:24}{result['batches']:12.0f}{result['updates']:12.0f}{peak:>18}{result['open']:10.1f} s")

    passed = {"ratio": ratio <= RATIO_TARGET, "memory": mapped["peak"] < MEMORY_TARGET}
    print(f"bytes at most {RATIO_TARGET} × raw: {'PASS' if passed['ratio'] else 'FAIL'}")
    print(f"peak under {MEMORY_TARGET / 1e6:.0f} MB:    {'PASS' if passed['memory'] else 'FAIL'}")
    sys.exit(0 if all(passed.values()) else 1)


if __name__ == "__main__":
    main()
