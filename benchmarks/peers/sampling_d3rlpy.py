"""Peer: d3rlpy's ``sample_transition_batch`` on its own replay buffer, and nothing else.

Start it with the python of a virtualenv holding requirements-d3rlpy.txt.
"""

from _d3rlpy_data import million_rows
from _windows import BATCH, arguments, serve


def main() -> None:
    options, dataset = arguments(), million_rows()

    def run(batches: int) -> None:
        for _ in range(batches):
            dataset.sample_transition_batch(BATCH)

    serve("d3rlpy", run, options)


if __name__ == "__main__":
    main()
