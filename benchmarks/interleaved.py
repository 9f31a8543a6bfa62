"""Peers that take turns: each is a process of its own, and windows of one follow those of another.

Machines are shared and noisy: read the ratios of the best windows, not the absolute numbers.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TypeVar

HERE = Path(__file__).parent
ROOT = HERE.parent
Seconds = tuple[float, float]
"""By the clock, and of all processors."""
Batch, Told = TypeVar("Batch"), TypeVar("Told")


def seconds(update: Callable[[Batch], Told], batches: Sequence[Batch]) -> Seconds:
    """Of one update, on average over a window."""
    wall, processor = time.perf_counter(), time.process_time()
    for batch in batches:
        update(batch)
    return (time.perf_counter() - wall) / len(batches), (time.process_time() - processor) / len(batches)


class Peer:
    """A process that waits for its turn."""

    def __init__(
        self, name: str, python: Path | str, updates: int, *flags: str, kind: str = "iql", threads: int = 2
    ) -> None:
        self.name = f"{name}{' compiled' if '--compile' in flags else ''}"
        script = HERE / "peers" / f"peer_{name}.py"
        self._process = subprocess.Popen(
            [str(python), str(script), kind, "--stdin", "--updates", str(updates), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "BENCH_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
        )
        self._read()
        self.speeds: list[float] = []
        self.thrifts: list[float] = []
        self.answers: list[dict[str, float]] = []
        """All that each window told."""

    @property
    def best(self) -> float:
        """Updates per second in the best window."""
        return max(self.speeds)

    @property
    def thriftiest(self) -> float:
        """Updates per processor second, of all threads, in the best window: less disturbed by others than `best`."""
        return max(self.thrifts)

    def turn(self) -> None:
        commands: IO[str] | None = self._process.stdin
        assert commands is not None
        commands.write("go\n")
        commands.flush()
        answer = self._read()
        self.answers.append(answer)
        self.speeds.append(answer["updates_per_second"])
        self.thrifts.append(answer["updates_per_cpu_second"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: stopped before it could be measured")
        answer: dict[str, float] = json.loads(line)
        return answer


def ourselves(kind: str, updates: int, *flags: str, threads: int = 2) -> list[Peer]:
    """Eager, and compiled where there is a C++ compiler."""
    peers = [Peer("understudy", sys.executable, updates, *flags, kind=kind, threads=threads)]
    if any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        peers.append(Peer("understudy", sys.executable, updates, *flags, "--compile", kind=kind, threads=threads))
    return peers


def take_turns(peers: Sequence[Peer], windows: int) -> None:
    """One window of each, then the next of each; six lines in all say how it goes."""
    for window in range(1, windows + 1):
        for peer in peers:
            peer.turn()
        if window % -(-windows // 6) == 0:
            best = ", ".join(f"{peer.name} {peer.best:.0f}/s" for peer in peers)
            print(f"window {window}/{windows}: best so far {best}", flush=True)
    for peer in peers:
        peer.close()


def print_ratios(ours: Sequence[Peer], theirs: Sequence[Peer], targets: dict[str, float]) -> None:
    """A row for each peer: how many times as fast as it we are, and whether the better of ours is enough.

    `products`, where measured, is no peer: its column is what an update's matrix products alone would reach.
    """
    bound = next((peer for peer in theirs if peer.name == "products"), None)
    columns = [*ours, *([] if bound is None else [bound])]
    print(f"\n{'best updates/s':<24}" + "".join(f"{f'{peer.name} {peer.best:.1f}':>28}" for peer in columns))
    for peer in theirs:
        if peer is bound:
            continue
        ratios = "".join(f"{mine.best / peer.best:>26.2f} x" for mine in columns)
        verdict = "PASS" if max(mine.best for mine in ours) >= targets[peer.name] * peer.best else "FAIL"
        print(f"{f'{peer.name} {peer.best:.1f}':<24}{ratios}   target {targets[peer.name]:.1f} x {verdict}")
        thrifts = "".join(f"{mine.thriftiest / peer.thriftiest:>26.2f} x" for mine in columns)
        print(f"{'  by processor time':<24}{thrifts}")
    print(flush=True)


def peer_python(name: str) -> Path | None:
    """The interpreter of a peer's own virtualenv, made on first use; None, and a word on it, where it cannot be."""
    if name in ("torch", "products"):
        return Path(sys.executable)
    folder = ROOT / f".venv-bench-{name}"
    if not (folder / ".ready").exists():
        print(f"installing {name} into {folder.name} …", flush=True)
        try:
            _install(name, folder)
        except subprocess.CalledProcessError:
            wanted = f"a virtualenv {folder.name} with benchmarks/peers/requirements-{name}.txt and a file .ready"
            print(f"{name} is not measured: it could not be installed. It needs {wanted}.", flush=True)
            return None
    return folder / "bin" / "python"


def _install(name: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if name in ("d3rlpy", "sb3", "rsl", "sbx"):  # torch first, so that nothing else pulls another build of it
        subprocess.run([*install, "torch==2.13.0"], check=True)
    subprocess.run([*install, "-r", str(HERE / "peers" / f"requirements-{name}.txt")], check=True)
    (folder / ".ready").touch()
