"""Peer: d3rlpy's ``sample_transition_batch`` on its own replay buffer, and nothing else.

Start it with the python of a virtualenv holding requirements-d3rlpy.txt; see
_windows.py for how it is timed.
"""

import logging
import os
import warnings

from _windows import ACTION, BATCH, OBSERVATION, ROWS, arguments, serve

os.environ["OMP_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import structlog  # noqa: E402

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

from d3rlpy.dataset import MDPDataset  # noqa: E402

EPISODE = 1000


def main() -> None:
    options = arguments()
    rng = np.random.default_rng(0)
    ends = np.zeros(ROWS, np.float32)
    ends[EPISODE - 1 :: EPISODE] = 1
    dataset = MDPDataset(
        observations=rng.standard_normal((ROWS, OBSERVATION), np.float32),
        actions=rng.uniform(-1, 1, (ROWS, ACTION)).astype(np.float32),
        rewards=rng.standard_normal((ROWS, 1), np.float32),
        terminals=ends,
    )
    assert dataset.transition_count == ROWS

    def run(batches: int) -> None:
        for _ in range(batches):
            dataset.sample_transition_batch(BATCH)

    serve("d3rlpy", run, options)


if __name__ == "__main__":
    main()
