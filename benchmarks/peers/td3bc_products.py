"""The matrix products of TD3+BC updates and nothing else."""

from _products import measure, network
from _windows import ACTION, BATCH, OBSERVATION, arguments


def main() -> None:
    options = arguments()
    layers, pair = options.layers, OBSERVATION + ACTION
    critics = [
        network(OBSERVATION, ACTION, layers, BATCH),
        network(pair, 1, layers, BATCH, 2),
        network(pair, 1, layers, BATCH, 2, learns=True),
    ]
    actor = [
        network(OBSERVATION, ACTION, layers, BATCH, learns=True),
        network(pair, 1, layers, BATCH, climbed=True),
    ]
    measure(options, [critics, [*critics, *actor]])


if __name__ == "__main__":
    main()
