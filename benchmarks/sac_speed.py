"""SAC's environment steps a second beside Stable-Baselines3 and SBX, and REDQ's updates beside a loop over its critics.

    python benchmarks/sac_speed.py                     # one environment, then 16, then REDQ; about ten minutes
    python benchmarks/sac_speed.py --parts redq

HalfCheetah-v5, an update for every step of an environment, batches of 256, 256-256 networks (`peers/_sac.py`). Each
library runs with one and with two threads, and its best counts: interleaved windows, ratios of the best. REDQ has ten
critics and twenty updates of them for each of the policy; the loop has a module for each critic and one Adam for all,
as most write it.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from interleaved import Peer, ourselves, peer_python, print_ratios, take_turns

TARGETS = {"sb3": 2.0, "sbx": 1.2}
PARTS = {"one": 1, "sixteen": 16, "redq": 0}


def fastest(peers: Sequence[Peer], name: str) -> Peer:
    return max((peer for peer in peers if peer.name.startswith(name)), key=lambda peer: peer.best)


def with_environments(count: int, pythons: dict[str, Path], options: argparse.Namespace) -> None:
    flags = ("--envs", str(count))
    peers: list[Peer] = []
    for threads in options.threads:
        started = ourselves("sac", options.updates, *flags, threads=threads)
        for name, python in pythons.items():
            started.append(Peer(name, python, options.updates, *flags, kind="sac", threads=threads))
        for peer in started:
            peer.name += f", {threads} thread{'s' if threads > 1 else ''}"
        peers += started
    take_turns(peers, options.windows)
    print(f"\nSAC, {count} environment{'s' if count > 1 else ''}: steps/s in the best of {options.windows} windows")
    ours = fastest(peers, "understudy")
    for peer in sorted(peers, key=lambda peer: peer.best):
        busy = min(answer["cores_others"] for answer in peer.answers)
        print(f"  {peer.name:<32}{peer.best:>8.1f}/s{peer.thriftiest:>8.1f} per cpu second   others took {busy:.2f}")
    for name in pythons:
        theirs = fastest(peers, name)
        verdict = "PASS" if ours.best >= TARGETS[name] * theirs.best else "FAIL"
        thrift = max(peer.thriftiest for peer in peers if peer.name.startswith("understudy"))
        thrift /= max(peer.thriftiest for peer in peers if peer.name.startswith(name))
        print(f"  {ours.best / theirs.best:.2f} x {theirs.name}, target {TARGETS[name]:.1f} x {verdict}", end="")
        print(f"; {thrift:.2f} x by processor time, which counts where others took much", flush=True)


def redq(options: argparse.Namespace) -> None:
    for threads in options.threads:
        ours = ourselves("redq", options.updates, threads=threads)
        loop = Peer("torch", sys.executable, options.updates, kind="redq", threads=threads)
        take_turns([*ours, loop], options.windows)
        print(f"\nREDQ, ten critics, threads: {threads}")
        print_ratios(ours, [loop], {"torch": 3.0})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--updates", type=int, default=96, help="updates per window")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2], help="each tried")
    parser.add_argument("--peers", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument(
        "--python", nargs="*", default=[], metavar="PEER=PATH", help="interpreters that are there already"
    )
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}, processors: {os.cpu_count()}")
    given = dict(pair.split("=", 1) for pair in options.python)
    found = {name: Path(given[name]) if name in given else peer_python(name) for name in options.peers}
    pythons = {name: path for name, path in found.items() if path is not None}
    for part in options.parts:
        redq(options) if part == "redq" else with_environments(PARTS[part], pythons, options)


if __name__ == "__main__":
    main()
