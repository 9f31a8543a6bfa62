"""Ourselves: the loop's two lines, on the same problem as the peers."""

import os
from types import ModuleType
from typing import Any

from _windows import ACTION, BATCH, EPISODE, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, serve

os.environ["OMP_NUM_THREADS"] = str(THREADS)

import numpy as np
import torch

from understudy import Box, Dataset, Episode
from understudy.core.protocols import Blueprint
from understudy.run.allocator import keep_freed_memory
from understudy.run.compiler import compile_update
from understudy.sources.offline import OfflineSource

HORIZON = 1_000_000


def million_rows() -> Dataset:
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
    return Dataset.from_episodes(episodes, Box((-1.0,) * ACTION, (1.0,) * ACTION))


def measure(module: ModuleType, **settings: Any) -> None:
    """Time an algorithm with its own settings and networks of the asked shape."""
    options = arguments()
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    dataset = million_rows()
    network = {"hidden": (HIDDEN,) * options.layers}
    config = module.Config.parse({"actor": network, "critic": network, **settings})
    device = torch.device("cpu")
    algorithm = module.build(config, Blueprint(dataset.spec, dataset.moments(), HORIZON, 0, device))
    source = OfflineSource.build(dataset, algorithm.demand, BATCH, 0, device)
    update = compile_update(algorithm.update, device) if options.compile else algorithm.update

    def run(updates: int) -> None:
        for _ in range(updates):
            update(source.next(algorithm.policy))

    serve("understudy", run, options)
