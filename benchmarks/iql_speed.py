"""IQL updates per second, side by side with d3rlpy and a plain JAX IQL, in interleaved windows.

    python benchmarks/iql_speed.py            # make bench

Each peer has its own virtualenv, made on first use (.venv-bench-*). Batch 256, observations 17, actions 6,
networks 256-256, two threads, sampling from a million rows included. Machines are shared and noisy: read the
ratios of the best windows, not the absolute numbers.
"""

import argparse

from interleaved import Peer, ourselves, peer_python, print_ratios, take_turns

TARGETS = {"d3rlpy": 3.0, "jax": 0.9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--updates", type=int, default=300, help="updates per window")
    parser.add_argument("--peers", nargs="*", default=sorted(TARGETS), choices=sorted(TARGETS))
    options = parser.parse_args()
    pythons = {name: peer_python(name) for name in options.peers}
    ours = ourselves("iql", options.updates)
    theirs = [Peer(name, python, options.updates) for name, python in pythons.items() if python is not None]
    take_turns([*ours, *theirs], options.windows)
    print_ratios(ours, theirs, TARGETS)


if __name__ == "__main__":
    main()
