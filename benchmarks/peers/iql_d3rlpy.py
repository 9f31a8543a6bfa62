"""Peer: d3rlpy's IQL, with its own replay buffer: the body of its ``fit`` loop without the logging.

Start it with the python of a virtualenv holding requirements-d3rlpy.txt; see
_windows.py for how it is timed.
"""

import logging
import os
import warnings

from _windows import ACTION, BATCH, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, serve

os.environ["OMP_NUM_THREADS"] = str(THREADS)
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import structlog  # noqa: E402
import torch  # noqa: E402

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

from d3rlpy.algos import IQLConfig  # noqa: E402
from d3rlpy.dataset import MDPDataset  # noqa: E402
from d3rlpy.models import VectorEncoderFactory  # noqa: E402
from d3rlpy.optimizers import AdamFactory  # noqa: E402
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory  # noqa: E402

EPISODE = 1000


def main() -> None:
    options = arguments()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
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
    encoder = VectorEncoderFactory(hidden_units=[HIDDEN, HIDDEN])
    iql = IQLConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        actor_optim_factory=AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=1_000_000)),
        critic_optim_factory=AdamFactory(),
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        value_encoder_factory=encoder,
        batch_size=BATCH,
        gamma=0.99,
        tau=0.005,
        n_critics=2,
        expectile=0.7,
        weight_temp=3.0,
        max_weight=100.0,
    ).create(device="cpu")
    iql.create_impl((OBSERVATION,), ACTION)

    def run(updates: int) -> None:
        for _ in range(updates):
            iql.update(dataset.sample_transition_batch(BATCH))

    serve("d3rlpy", run, options)


if __name__ == "__main__":
    main()
