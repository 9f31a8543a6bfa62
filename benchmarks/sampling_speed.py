"""Batches of 256 out of a million rows (17 observations, 6 actions): ours, d3rlpy's, and bare tensor indexing.

    python benchmarks/sampling_speed.py              # about two minutes; 0.7 GB on disk for the store
    python benchmarks/sampling_speed.py --no-store --no-peer

Everybody on one thread, in interleaved windows; read the ratios of the best windows, machines are shared and noisy.
Bare indexing is `obs[i], action[i], reward[i], obs[i + 1], terminated[i]` of the same columns with indices drawn
beforehand: no draw, no episode borders, no normalised actions. `index_select` is the same in torch's fastest form.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch
from dataset_memory import ACTION, OBSERVATION, in_memory, on_disk
from interleaved import Peer, peer_python
from torch import Tensor

from understudy.algorithms import bc
from understudy.core.protocols import BuildContext, Carry, Demand, Source
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.data.stores.store import open_store
from understudy.run.allocator import keep_freed_memory
from understudy.sources import SourceInputs, offline, sequences

ROWS, BATCH, LENGTH = 1_000_000, 256, 16
STORE_EPISODES = 7000
"""Of a thousand steps: 0.68 GB, more than a store may have to be mapped as a whole."""
PEER_TARGET, BARE_TARGET = 20.0, 1.3
Run = Callable[[int], None]


class Nobody:
    """A policy that is never asked."""

    def initial(self, count: int) -> Carry:
        raise NotImplementedError

    def act(self, obs: dict[str, Tensor], carry: Carry, *, greedy: bool, rng: object = None) -> tuple[Tensor, Carry]:
        raise NotImplementedError


def drawing(source: Source) -> Run:
    def run(batches: int) -> None:
        for _ in range(batches):
            source.next(Nobody())

    return run


def bare() -> tuple[Run, Run]:
    """Plain indexing and `index_select` of plain columns."""
    rng = torch.Generator().manual_seed(0)
    obs, action = torch.randn(ROWS + 1, OBSERVATION, generator=rng), torch.randn(ROWS, ACTION, generator=rng)
    reward, terminated = torch.randn(ROWS, generator=rng), torch.zeros(ROWS, dtype=torch.bool)
    indices = cycle(torch.randint(ROWS, (4096, BATCH), generator=rng))

    def plain(batches: int) -> None:
        for _ in range(batches):
            i = next(indices)
            _ = obs[i], action[i], reward[i], obs[i + 1], terminated[i]

    def select(batches: int) -> None:
        for _ in range(batches):
            i = next(indices)
            _ = [column.index_select(0, i) for column in (obs, action, reward, terminated)], obs.index_select(0, i + 1)

    return plain, select


def inputs_of(dataset: Dataset) -> SourceInputs:
    """As of an algorithm that asks for nothing beyond the rows."""
    algorithm = bc.build(bc.Config(), BuildContext.over(LoggedExperience.of(dataset)))
    return replace(SourceInputs.over(LoggedExperience.of(dataset), algorithm), demand=Demand())


def ours(dataset: Dataset) -> dict[str, Run]:
    dataset.extra["weight"] = torch.rand(dataset.steps, generator=torch.Generator().manual_seed(0))
    inputs = inputs_of(dataset)
    ways = {"uniform": {}, "by weight": {"weights": "weight"}, "every row once": {"replacement": False}}
    runs = {
        f"ours, {name}": drawing(offline.build(offline.Config.parse({"batch_size": BATCH, **wishes}), inputs))
        for name, wishes in ways.items()
    }
    stretches = sequences.build(sequences.Config(batch_size=BATCH // LENGTH, length=LENGTH), inputs)
    runs[f"ours, {BATCH // LENGTH} sequences of {LENGTH}"] = drawing(stretches)
    return runs


@contextmanager
def stored(wanted: bool) -> Iterator[dict[str, Run]]:
    """A store too large to be mapped as a whole."""
    if not wanted:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        print("writing a store …", flush=True)
        dataset = open_store(on_disk(Path(folder), STORE_EPISODES))
        yield {"ours, from a large store": drawing(offline.build(offline.Config(batch_size=BATCH), inputs_of(dataset)))}


def window(run: Run, batches: int) -> float:
    start = time.perf_counter()
    run(batches)
    return batches / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--batches", type=int, default=2000, help="batches per window; the slow ones do a twentieth")
    parser.add_argument("--no-peer", action="store_true", help="leave d3rlpy out")
    parser.add_argument("--no-store", action="store_true", help="leave the store on disk out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    plain, select = bare()
    slow = max(16, options.batches // 20)
    python = None if options.no_peer else peer_python("d3rlpy")
    peers = [] if python is None else [Peer("d3rlpy", python, slow, kind="sampling", threads=1)]
    with stored(not options.no_store) as large:
        runs = {"bare indexing": plain, "index_select": select, **ours(in_memory(ROWS // 1000)), **large}
        speeds: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(options.windows + 1):
            for name, run in runs.items():
                speeds[name].append(window(run, slow if name in large else options.batches))
            for peer in peers:
                peer.turn()
            print(f"window {number}/{options.windows}" if number else "warm", flush=True)
    best = {name: max(values[1:]) for name, values in speeds.items()} | {peer.name: max(peer.speeds) for peer in peers}
    for peer in peers:
        peer.close()
    sys.exit(report(best))


def report(best: dict[str, float]) -> int:
    """The table, and 1 if a target is missed."""
    peer = best.get("d3rlpy")
    print(f"\n{'':<30}{'batches/s':>12}{'µs a batch':>12}{'× bare time':>14}{'× d3rlpy speed':>16}")
    for name, speed in best.items():
        ratio = "" if peer is None else f"{speed / peer:.1f}"
        print(f"{name:<30}{speed:>12.0f}{1e6 / speed:>12.1f}{best['bare indexing'] / speed:>14.2f}{ratio:>16}")
    uniform = best["ours, uniform"]
    passed = {f"time at most {BARE_TARGET} × bare indexing": best["bare indexing"] / uniform <= BARE_TARGET}
    if peer is not None:
        passed[f"at least {PEER_TARGET:g} × d3rlpy"] = uniform / peer >= PEER_TARGET
    for name, well in passed.items():
        print(f"{name}: {'PASS' if well else 'FAIL'}")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    main()
