"""The matrix products of one update and nothing else: about what torch could reach if all the rest were free.

No bias, no ReLU, no loss, no optimiser, no sampling; rows in blocks that fit the cache, written into the same memory.
"""

import argparse
import itertools
import os
from collections.abc import Callable, Sequence

from _windows import HIDDEN, THREADS, serve

os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch

BLOCK = 1024


def network(
    inputs: int, outputs: int, layers: int, rows: int, members: int = 1, *, learns: bool = False, climbed: bool = False
) -> Callable[[], None]:
    """The products of a pass through a stack of networks: forward, and back to its weights or to its inputs."""
    sizes, size = [inputs, *[HIDDEN] * layers, outputs], min(rows, BLOCK)
    units = [torch.randn(members, size, width) for width in sizes]
    weights = [torch.randn(members, *shape) / HIDDEN**0.5 for shape in itertools.pairwise(sizes)]
    gradients, back = ([torch.empty_like(part) for part in parts] for parts in (weights, units))

    def block() -> None:
        for number, weight in enumerate(weights[:-1]):  # what the last layer of one unit costs is nothing
            torch.bmm(units[number], weight, out=units[number + 1])
            if learns:
                torch.bmm(units[number].mT, units[number + 1], out=gradients[number])
            if climbed or (learns and number > 0):
                torch.bmm(units[number + 1], weight.mT, out=back[number])

    def run() -> None:
        for _ in range(-(-rows // BLOCK)):
            block()

    return run


def measure(options: argparse.Namespace, passes: Sequence[Sequence[Callable[[], None]]]) -> None:
    """Time updates that take turns: the first runs passes[0], the second passes[1], and so on."""
    torch.set_num_threads(THREADS)

    def run(updates: int) -> None:
        for number in range(updates):
            for pass_through in passes[number % len(passes)]:
                pass_through()

    serve("products", run, options)
