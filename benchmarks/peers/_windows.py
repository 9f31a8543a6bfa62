"""How a peer script is timed: in windows, one JSON line each.

There is a script for each library, `peer_<name>.py KIND`, to be started with the python of a virtualenv that holds its
`requirements-<name>.txt`. Every one imports this file and calls :func:`serve`.  With ``--stdin`` a peer
waits for a line ``go`` before each window and leaves at end of input, so that a
runner can hold several peers open and let them take turns: on a shared machine
only interleaved windows compare fairly.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

THREADS = int(os.environ.get("BENCH_THREADS", "2"))

# The problem that every offline peer measures.
ROWS = 1_000_000
OBSERVATION = 17
ACTION = 6
BATCH = 256
HIDDEN = 256
EPISODE = 1000


def arguments(**kinds: Callable[[argparse.ArgumentParser], None]) -> argparse.Namespace:
    """The first word says what is measured; each kind adds the options it takes."""
    parser = argparse.ArgumentParser()
    chosen = parser.add_subparsers(dest="kind", required=True)
    for name, add_options in kinds.items():
        add_options(chosen.add_parser(name))
    return parser.parse_args()


def window_options(parser: argparse.ArgumentParser, updates: int) -> None:
    parser.add_argument("--windows", type=int, default=5, help="timing windows (without --stdin)")
    parser.add_argument("--updates", type=int, default=updates, help="updates or iterations per window")
    parser.add_argument("--stdin", action="store_true", help="one window per line 'go', until EOF")


def offline_options(parser: argparse.ArgumentParser) -> None:
    window_options(parser, 1000)
    parser.add_argument("--layers", type=int, default=2, help="hidden layers of every network")
    parser.add_argument("--compile", action="store_true", help="compile the update (understudy only)")


def turns(options: argparse.Namespace) -> Iterable[object]:
    """One for each window that is asked for."""
    return (line for line in sys.stdin if line.strip() == "go") if options.stdin else range(options.windows)


def machine_busy() -> float:
    """Processor seconds that the whole machine has spent busy since it started."""
    with Path("/proc/stat").open() as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def serve(name: str, run: Callable[[int], None], options: argparse.Namespace) -> None:
    """Warm ``run`` up, then time it; ``run(n)`` performs n updates and waits for them."""
    run(max(options.updates, 10))
    print(json.dumps({"peer": name, "ready": True, "pid": os.getpid()}), flush=True)
    for _ in turns(options):
        wall, cpu, busy = time.perf_counter(), time.process_time(), machine_busy()
        run(options.updates)
        wall, cpu, busy = time.perf_counter() - wall, time.process_time() - cpu, machine_busy() - busy
        print(
            json.dumps(
                {
                    "peer": name,
                    "updates": options.updates,
                    "seconds": round(wall, 4),
                    "updates_per_second": round(options.updates / wall, 3),
                    "updates_per_cpu_second": round(options.updates / cpu, 3),
                    "cores_used": round(cpu / wall, 2),
                    "cores_others": round(max(0.0, busy - cpu) / wall, 2),  # > 0.1: a disturbed window
                }
            ),
            flush=True,
        )
