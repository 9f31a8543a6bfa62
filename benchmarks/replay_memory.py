"""What a replay buffer of ten million steps costs: in memory, to draw from, and at a line of a log.

    python benchmarks/replay_memory.py            # 3.3 GB on disk, 2 GB of memory, two minutes

Steps of HalfCheetah (17 observations, 6 actions). A ring in a file and one in memory, each in a process of its own:
memory while batches of 256 are drawn from all over it, that of the process itself under 1 GB for the file. Pages of the
file that the kernel has mapped count as resident, too, but are its own, to be taken back at any time: both are told.
Batches per second in interleaved windows, the file's at most 1.5 times as long as the memory's. Then a million rows in
memory: what a capture, which every log line takes for its guard, costs in time and in memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import torch

from understudy.core.protocols import Demand
from understudy.core.spec import Box, Group, Spec
from understudy.core.state import capture
from understudy.data.replay_ring import FLAGS, NUMBERS, VALID, ReplayRing
from understudy.data.rewards import RewardTransform
from understudy.sources.sampling.draws import uniform_rows

OBSERVATION, ACTION, BATCH, CHUNK = 17, 6, 256, 1 << 16
SPEC = Spec({"state": Group((OBSERVATION,), "float32")}, Box((-1.0,) * ACTION, (1.0,) * ACTION))
DEMAND = Demand(("td_valid", "discount"))
MEMORY_TARGET, TIME_TARGET = 1 << 30, 1.5
IN_MEMORY = 1 << 50


def filled(rows: int, memory: int) -> ReplayRing:
    """A ring of so many steps, full; above `memory` bytes it lies in a file."""
    ring = ReplayRing.empty(SPEC, rows, 1, memory=memory)
    rng = torch.Generator().manual_seed(0)
    width = ring.rows.row[NUMBERS].shape[0]
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        numbers = torch.rand(count, width, generator=rng)
        ring.rows.append({NUMBERS: numbers, FLAGS: torch.full((count,), VALID, dtype=torch.uint8)})
    return ring


def resident(name: str) -> int:
    """VmRSS, VmHWM, RssAnon or RssFile of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def serve(rows: int, mapped: bool) -> None:
    """In a process of its own: a window of batches for every line that is read."""
    torch.set_num_threads(1)
    ring = filled(rows, 1 if mapped else IN_MEMORY)
    assert ring.rows.mapped == mapped
    rng, reward = torch.Generator().manual_seed(1), RewardTransform()
    print(json.dumps({"after_filling": resident("VmRSS")}), flush=True)
    for line in sys.stdin:
        batches, start, busy = int(line), time.perf_counter(), time.process_time()
        for _ in range(batches):
            ring.transitions(uniform_rows(BATCH, len(ring), rng), DEMAND, reward)
        told = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy}
        memory = {name: resident(name) for name in ("VmRSS", "VmHWM", "RssAnon")}
        print(json.dumps({**told, **memory}), flush=True)


class Child:
    def __init__(self, rows: int, kind: str) -> None:
        command = [sys.executable, __file__, "--serve", kind, "--rows", str(rows)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self._read()
        self.windows: list[dict[str, float]] = []

    def window(self, batches: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{batches}\n")
        self._process.stdin.flush()
        self.windows.append(self._read())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def best(self, name: str) -> float:
        return min(window[name] for window in self.windows)


def log_line(rows: int) -> tuple[float, int, int]:
    """Seconds, bytes of Python and growth of resident memory of a capture of a ring that is full."""
    ring = filled(rows, IN_MEMORY)
    before = resident("VmRSS")
    tracemalloc.start()
    start = time.perf_counter()
    held = capture(ring)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    grown = resident("VmRSS") - before
    assert held
    return seconds, peak, grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--batches", type=int, default=1000, help="per window")
    parser.add_argument("--serve", choices=("mapped", "memory"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.rows, options.serve == "mapped")
        return
    print(f"load before: {os.getloadavg()[0]:.1f}; scratch files in {tempfile.gettempdir()}")
    children = {kind: Child(options.rows, kind) for kind in ("mapped", "memory")}
    for _ in range(options.windows):
        for child in children.values():
            child.window(options.batches)
    print(f"{options.rows:,} steps{'':8}{'us a batch':>12}{'of processor':>14}{'resident':>12}{'peak':>10}{'own':>10}")
    for kind, child in children.items():
        last = child.windows[-1]
        cells = [child.best(name) / options.batches * 1e6 for name in ("seconds", "cpu")]
        memory = "".join(f"{last[name] / 1e6:>7.0f} MB" for name in ("VmRSS", "VmHWM", "RssAnon"))
        print(f"  {kind:<18}{cells[0]:>12.1f}{cells[1]:>14.1f}{memory}")
        child.close()
    ratio = children["mapped"].best("seconds") / children["memory"].best("seconds")
    largest = max(window["RssAnon"] for window in children["mapped"].windows)
    seconds, traced, grown = log_line(1_000_000)
    print(f"a capture of a million rows: {seconds * 1e3:.2f} ms, {traced / 1e3:.0f} kB of Python, {grown / 1e6:.1f} MB")
    passed = {
        f"its own memory under {MEMORY_TARGET >> 20} MB": largest < MEMORY_TARGET,
        f"at most {TIME_TARGET} times as long ({ratio:.2f})": ratio <= TIME_TARGET,
        "a capture copies nothing": grown < 4 << 20 and traced < 4 << 20,
    }
    for what, well in passed.items():
        print(f"{what}: {'PASS' if well else 'FAIL'}")
    sys.exit(0 if all(passed.values()) else 1)


if __name__ == "__main__":
    main()
