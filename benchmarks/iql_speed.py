"""IQL updates per second, side by side with d3rlpy and a plain JAX IQL, in interleaved windows.

    python benchmarks/iql_speed.py            # make bench

Each peer has its own virtualenv, made on first use (.venv-bench-*). Batch 256, observations 17, actions 6,
networks 256-256, two threads, sampling from a million rows included. Machines are shared and noisy: read the
ratios of the best windows, not the absolute numbers.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
ROOT = HERE.parent
TARGETS = {"d3rlpy": 3.0, "jax": 0.9}


class Peer:
    """A process that waits for its turn."""

    def __init__(self, name: str, python: Path | str, updates: int, *flags: str, kind: str = "iql") -> None:
        self.name = f"{name}{' compiled' if flags else ''}"
        script = HERE / "peers" / f"{kind}_{name}.py"
        self._process = subprocess.Popen(
            [str(python), str(script), "--stdin", "--updates", str(updates), *flags],
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
    ours = [Peer("understudy", sys.executable, options.updates)]
    if any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        ours.append(Peer("understudy", sys.executable, options.updates, "--compile"))
    theirs = [Peer(name, python, options.updates) for name, python in pythons.items()]
    for window in range(options.windows):
        for peer in [*ours, *theirs]:
            peer.turn()
        speeds = ", ".join(f"{peer.name} {peer.speeds[-1]:.0f}/s" for peer in [*ours, *theirs])
        print(f"window {window + 1}/{options.windows}: {speeds}", flush=True)
    for peer in [*ours, *theirs]:
        peer.close()
    print(f"\n{'best updates/s':<24}" + "".join(f"{peer.name:>22}" for peer in ours))
    print(f"{'':<24}" + "".join(f"{max(peer.speeds):>22.1f}" for peer in ours))
    for peer in theirs:
        ratios = "".join(f"{max(mine.speeds) / max(peer.speeds):>20.2f} x" for mine in ours)
        print(f"{f'{peer.name} {max(peer.speeds):.1f}':<24}{ratios}   target {TARGETS[peer.name]:.1f} x")


if __name__ == "__main__":
    main()
