"""PPO's environment steps a second, side by side with Stable-Baselines3 and rsl-rl-lib, in interleaved windows.

    python benchmarks/ppo_speed.py                                  # all tasks; EnvPool must be installed here too
    python benchmarks/ppo_speed.py --tasks cheetah --normalize      # with running normalisation of observations
    python benchmarks/ppo_speed.py --tasks cheetah --memory gru lstm    # our recurrent PPO against our own MLP

2,048 transitions per iteration, minibatches of 512, 5 epochs, tanh networks, a constant step size; HalfCheetah has 16
environments and 64-64 networks, Go1 64 environments (go1-wide: 512-256-128). Each peer runs with one and with two
threads of torch, and where environments are Gymnasium's with them in its own process and in others (two of ours; of
the peers one for each environment, as they come), and its best counts; EnvPool always has a thread for each processor.
`environment` is random actions through what a peer's users step, `rollout` adds inference and storage, `training` is
everything. Machines are shared and noisy: read the ratios of the best windows, not the absolute numbers.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from interleaved import Peer, peer_python

TARGETS = {"cheetah": 1.4, "cheetah-envpool": 1.8, "go1": 1.4, "go1-wide": 0.0}
POOLED = ("cheetah-envpool", "go1", "go1-wide")
SLOWEST_MEMORY = 2.5
SHARED = "p"
"""Ends the name of a peer whose environments are in other processes, too."""
TRANSITIONS = 2048
PHASES = ("environment", "rollout", "training")


def best(peers: Sequence[Peer], phase: str) -> tuple[float, Peer]:
    """Environment steps a second in the best window of any of these, and whose it was."""
    found = [(max(answer[phase] for answer in peer.answers), peer.name, peer) for peer in peers]
    speed, _, peer = max(found)
    return TRANSITIONS * speed, peer


def take_turns(peers: Sequence[Peer], windows: int) -> None:
    for window in range(1, windows + 1):
        for peer in peers:
            peer.turn()
        if window % -(-windows // 6) == 0:
            told = ", ".join(f"{peer.name} {TRANSITIONS * peer.best:.0f}" for peer in peers)
            print(f"window {window}/{windows}: best training steps/s so far: {told}", flush=True)
    for peer in peers:
        peer.close()


def row(name: str, peers: Sequence[Peer]) -> float:
    """Print what a library reached in each phase; gives its training speed."""
    cells = []
    for phase in PHASES:
        speed, peer = best(peers, phase)
        cells.append(f"{speed:>12.0f} ({peer.name.split()[-1]})")
    alone = [peer for peer in peers if not peer.name.endswith(SHARED)]  # others' processor time is not counted
    thrift = TRANSITIONS * max(answer["training_cpu"] for peer in alone for answer in peer.answers)
    print(f"  {name:<16}" + "".join(f"{cell:>18}" for cell in cells) + f"{thrift:>16.0f}", flush=True)
    return best(peers, "training")[0]


def heading(title: str, windows: int) -> None:
    print(f"\n{title}: steps/s in the best of {windows} windows (threads of torch; p: and processes)")
    print(f"  {'':<16}" + "".join(f"{phase:>18}" for phase in PHASES) + f"{'per cpu second':>16}")


def against_peers(task: str, pythons: dict[str, Path], options: argparse.Namespace) -> None:
    flags = ["--task", task, *(["--normalize"] if options.normalize else [])]
    groups: dict[str, list[Peer]] = {}
    for name, python in pythons.items():
        groups[name] = [
            start(name, python, flags, threads, options.updates, processes)
            for threads in options.threads
            for processes in (1, 2)[: 1 if task in POOLED else 2]
        ]
    take_turns([peer for peers in groups.values() for peer in peers], options.windows)
    heading(f"{task}{', normalised' if options.normalize else ''}", options.windows)
    speeds = {name: row(name, peers) for name, peers in groups.items()}
    ours, theirs = speeds.pop("understudy"), max(speeds.values(), default=0.0)
    if theirs:
        target = TARGETS[task]
        verdict = f"target {target:.1f} x {'PASS' if ours >= target * theirs else 'FAIL'}" if target else "no target"
        print(f"  {ours / theirs:.2f} x the better peer, {verdict}")
    alone, whole = best(groups["understudy"], "environment")[0], ours
    print(f"  the environments alone take {whole / alone:.0%} of our iteration", flush=True)


def against_ourselves(task: str, options: argparse.Namespace) -> None:
    flags = ["--task", task, *(["--normalize"] if options.normalize else [])]
    groups = {
        kind: [start("understudy", Path(sys.executable), [*flags, "--memory", kind], 1, options.updates)]
        for kind in ("none", *options.memory)
    }
    take_turns([peer for peers in groups.values() for peer in peers], options.windows)
    heading(f"{task}, memory of 64 units", options.windows)
    speeds = {kind: row(kind, peers) for kind, peers in groups.items()}
    for kind in options.memory:
        slower = speeds["none"] / speeds[kind]
        verdict = "PASS" if slower <= SLOWEST_MEMORY else "FAIL"
        print(f"  {kind} is {slower:.2f} x slower, at most {SLOWEST_MEMORY} x {verdict}", flush=True)


def start(name: str, python: Path, flags: list[str], threads: int, updates: int, processes: int = 1) -> Peer:
    peer = Peer(name, python, updates, *flags, "--processes", str(processes), kind="ppo", threads=threads)
    peer.name = f"{name} {threads}{SHARED if processes > 1 else ''}"
    return peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--updates", type=int, default=2, help="iterations per window")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2], help="of torch, each tried")
    parser.add_argument("--normalize", action="store_true")
    parser.add_argument("--memory", nargs="*", default=[], choices=["gru", "lstm"], help="instead of the peers")
    parser.add_argument(
        "--python", nargs="*", default=[], metavar="PEER=PATH", help="interpreters that are there already"
    )
    options = parser.parse_args()
    given = dict(pair.split("=", 1) for pair in options.python)
    if options.memory:
        for task in options.tasks:
            against_ourselves(task, options)
        return
    found = {name: Path(given[name]) if name in given else peer_python(name) for name in ("sb3", "rsl")}
    pythons = {"understudy": Path(sys.executable)} | {name: path for name, path in found.items() if path is not None}
    for task in options.tasks:
        against_peers(task, pythons, options)


if __name__ == "__main__":
    main()
