"""The problem as d3rlpy holds it, and its ``fit`` loop without the logging: what its peers share."""

import argparse
import logging
import os
import warnings
from typing import Any

from _windows import ACTION, BATCH, EPISODE, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, serve

os.environ["OMP_NUM_THREADS"] = str(THREADS)
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import structlog  # noqa: E402
import torch  # noqa: E402

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

from d3rlpy.dataset import MDPDataset  # noqa: E402
from d3rlpy.models import VectorEncoderFactory  # noqa: E402


def million_rows() -> Any:
    """Its replay buffer, full of noise in episodes."""
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
    return dataset


def started() -> tuple[argparse.Namespace, Any]:
    """The options, and an encoder of the networks they ask for."""
    options = arguments()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    return options, VectorEncoderFactory(hidden_units=[HIDDEN] * options.layers)


def measure(config: Any, options: argparse.Namespace) -> None:
    dataset, algorithm = million_rows(), config.create(device="cpu")
    algorithm.create_impl((OBSERVATION,), ACTION)

    def run(updates: int) -> None:
        for _ in range(updates):
            algorithm.update(dataset.sample_transition_batch(BATCH))

    serve("d3rlpy", run, options)
