"""IQL updates per second, side by side with d3rlpy and a plain JAX IQL, in interleaved windows.

    python benchmarks/iql_speed.py            # make bench

Each peer has its own virtualenv, made on first use (.venv-bench-*). Batch 256, observations 17, actions 6,
networks 256-256, two threads, sampling from a million rows included. Machines are shared and noisy: read the
ratios of the best windows, not the absolute numbers.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
ROOT = HERE.parent
TARGETS = {"d3rlpy": 3.0, "jax": 0.9}


class Peer:
    """A process that waits for its turn."""

    def __init__(self, name: str, python: Path | str, updates: int) -> None:
        self.name = name
        script = HERE / "peers" / f"iql_{name}.py"
        self._process = subprocess.Popen(
            [str(python), str(script), "--stdin", "--updates", str(updates)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()
        self.speeds: list[float] = []

    def turn(self) -> None:
        commands: IO[str] | None = self._process.stdin
        assert commands is not None
        commands.write("go\n")
        commands.flush()
        self.speeds.append(self._read()["updates_per_second"])

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


def peer_python(name: str) -> Path:
    """The interpreter of a peer's own virtualenv, made on first use."""
    folder = ROOT / f".venv-bench-{name}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        print(f"installing {name} into {folder.name} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        requirements = HERE / "peers" / f"requirements-{name}.txt"
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if name == "d3rlpy":
            subprocess.run([*install, "torch==2.13.0"], check=True)
        subprocess.run([*install, "-r", str(requirements)], check=True)
        (folder / ".ready").touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--updates", type=int, default=300, help="updates per window")
    parser.add_argument("--peers", nargs="*", default=sorted(TARGETS), choices=sorted(TARGETS))
    options = parser.parse_args()
    pythons = {name: peer_python(name) for name in options.peers}
    peers = [Peer("understudy", sys.executable, options.updates)]
    peers += [Peer(name, python, options.updates) for name, python in pythons.items()]
    for window in range(options.windows):
        for peer in peers:
            peer.turn()
        print(f"window {window + 1}/{options.windows}: " + ", ".join(f"{p.name} {p.speeds[-1]:.0f}/s" for p in peers))
    for peer in peers:
        peer.close()
    ours = max(peers[0].speeds)
    print(f"\n{'':<12}{'best updates/s':>16}{'ours / theirs':>16}{'target':>10}")
    print(f"{'understudy':<12}{ours:>16.1f}")
    for peer in peers[1:]:
        ratio = ours / max(peer.speeds)
        print(f"{peer.name:<12}{max(peer.speeds):>16.1f}{ratio:>15.2f}x{TARGETS[peer.name]:>9.1f}x")


if __name__ == "__main__":
    main()
