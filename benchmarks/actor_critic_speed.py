"""TD3+BC and CQL updates per second, side by side with d3rlpy and plain PyTorch, in interleaved windows.

    python benchmarks/actor_critic_speed.py            # make bench; about five minutes
    python benchmarks/actor_critic_speed.py --kinds cql --layers 3 --threads 1

d3rlpy has its own virtualenv, made on first use (.venv-bench-d3rlpy). Plain PyTorch is what most would write: a module
for each network, torch's Adam, and for CQL ten actions of each kind for repeated states (peers/peer_torch.py). All:
batch 256, observations 17, actions 6, the same networks and settings, sampling from a million rows included. `products`
does the matrix products of an update by torch's own kernels and nothing else: about what could be reached if all the
rest were free. Machines are shared and noisy: read the ratios of the best windows, not the absolute numbers.
"""

import argparse

from interleaved import Peer, ourselves, peer_python, print_ratios, take_turns

TARGETS = {"d3rlpy": 2.5, "torch": 1.5}
PEERS = [*sorted(TARGETS), "products"]
UPDATES = {"td3bc": 10, "cql": 2}
"""Of a window: a tenth of a second of the slowest. Many short windows find the moments that nobody else disturbs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--kinds", nargs="*", default=sorted(UPDATES), choices=sorted(UPDATES))
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--threads", nargs="*", type=int, default=[2, 1])
    parser.add_argument("--layers", type=int, default=2, help="hidden layers of 256 units in every network")
    options = parser.parse_args()
    pythons = {name: python for name in options.peers if (python := peer_python(name)) is not None}
    for kind in options.kinds:
        for threads in options.threads:
            print(f"{kind}, {options.layers} hidden layers of 256, {threads} thread{'s' * (threads > 1)}", flush=True)
            updates, flags = UPDATES[kind], ("--layers", str(options.layers))
            ours = ourselves(kind, updates, *flags, threads=threads)
            theirs = [
                Peer(name, python, updates, *flags, kind=kind, threads=threads) for name, python in pythons.items()
            ]
            take_turns([*ours, *theirs], options.windows)
            print_ratios(ours, theirs, TARGETS)


if __name__ == "__main__":
    main()
