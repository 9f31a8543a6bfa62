"""The matrix products of a CQL update, ten sampled actions of each kind, and nothing else."""

from _products import measure, network
from _windows import ACTION, BATCH, OBSERVATION, arguments

ACTIONS_OF_A_STATE = 31


def main() -> None:
    options = arguments()
    layers, pair = options.layers, OBSERVATION + ACTION
    update = [
        network(OBSERVATION, 2 * ACTION, layers, 2 * BATCH),
        network(pair, 1, layers, BATCH, 2),
        network(pair, 1, layers, ACTIONS_OF_A_STATE * BATCH, 2, learns=True),
        network(OBSERVATION, 2 * ACTION, layers, BATCH, learns=True),
        network(pair, 1, layers, BATCH, 2, climbed=True),
    ]
    measure(options, [update])


if __name__ == "__main__":
    main()
