"""Ourselves: the loop's two lines, on the same problem as the peers."""

import os

from _windows import ACTION, BATCH, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, serve

os.environ["OMP_NUM_THREADS"] = str(THREADS)

import numpy as np
import torch

from understudy import Box, Dataset, Episode
from understudy.algorithms import iql
from understudy.core.protocols import Blueprint
from understudy.run.allocator import keep_freed_memory
from understudy.run.compiler import compile_update
from understudy.sources.offline import OfflineSource

EPISODE = 1000
HORIZON = 1_000_000


def main() -> None:
    options = arguments()
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    rng = np.random.default_rng(0)
    episodes = (
        Episode(
            {"state": rng.standard_normal((EPISODE + 1, OBSERVATION), np.float32)},
            rng.uniform(-1, 1, (EPISODE, ACTION)).astype(np.float32),
            rng.standard_normal(EPISODE, np.float32),
            terminated=False,
            truncated=True,
        )
        for _ in range(ROWS // EPISODE)
    )
    dataset = Dataset.from_episodes(episodes, Box((-1.0,) * ACTION, (1.0,) * ACTION))
    network = {"hidden": (HIDDEN, HIDDEN)}
    config = iql.Config.parse({"actor": network, "critic": network})
    device = torch.device("cpu")
    algorithm = iql.build(config, Blueprint(dataset.spec, dataset.moments(), HORIZON, 0, device))
    source = OfflineSource.build(dataset, algorithm.demand, BATCH, 0, device)

    update = compile_update(algorithm.update, device) if options.compile else algorithm.update

    def run(updates: int) -> None:
        for _ in range(updates):
            update(source.next(algorithm.policy))

    serve("understudy", run, options)


if __name__ == "__main__":
    main()
