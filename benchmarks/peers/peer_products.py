"""The matrix products of an update of CQL or TD3+BC alone: about what torch could reach if all the rest were free.

No bias, no ReLU, no loss, no optimiser, no sampling; rows in blocks that fit the cache, written into the same memory.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
from _windows import ACTION, BATCH, HIDDEN, OBSERVATION, THREADS, arguments, offline_options, serve

BLOCK = 1024
PAIR = OBSERVATION + ACTION
ACTIONS_OF_A_STATE = 31
"""Of CQL: ten sampled actions of each kind, and its own."""
Pass = Callable[[], None]


def network(
    inputs: int, outputs: int, layers: int, rows: int, members: int = 1, *, learns: bool = False, climbed: bool = False
) -> Pass:
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


def cql(layers: int) -> Sequence[Sequence[Pass]]:
    """Updates that take turns: the first runs the first passes, the second the second, and so on."""
    update = [
        network(OBSERVATION, 2 * ACTION, layers, 2 * BATCH),
        network(PAIR, 1, layers, BATCH, 2),
        network(PAIR, 1, layers, ACTIONS_OF_A_STATE * BATCH, 2, learns=True),
        network(OBSERVATION, 2 * ACTION, layers, BATCH, learns=True),
        network(PAIR, 1, layers, BATCH, 2, climbed=True),
    ]
    return [update]


def td3bc(layers: int) -> Sequence[Sequence[Pass]]:
    critics = [
        network(OBSERVATION, ACTION, layers, BATCH),
        network(PAIR, 1, layers, BATCH, 2),
        network(PAIR, 1, layers, BATCH, 2, learns=True),
    ]
    actor = [
        network(OBSERVATION, ACTION, layers, BATCH, learns=True),
        network(PAIR, 1, layers, BATCH, climbed=True),
    ]
    return [critics, [*critics, *actor]]


def main() -> None:
    options = arguments(cql=offline_options, td3bc=offline_options)
    torch.set_num_threads(THREADS)
    passes = {"cql": cql, "td3bc": td3bc}[options.kind](options.layers)

    def run(updates: int) -> None:
        for number in range(updates):
            for pass_through in passes[number % len(passes)]:
                pass_through()

    serve("products", run, options)


if __name__ == "__main__":
    main()
