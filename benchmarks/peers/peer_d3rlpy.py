"""d3rlpy: IQL, CQL and TD3+BC in its ``fit`` loop without the logging, or ``sample_transition_batch`` alone."""

import argparse
import logging
import warnings
from typing import Any

import numpy as np
import structlog
import torch
from _windows import ACTION, BATCH, EPISODE, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, offline_options, serve

warnings.filterwarnings("ignore")
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

from d3rlpy.algos import CQLConfig, IQLConfig, TD3PlusBCConfig  # noqa: E402
from d3rlpy.dataset import MDPDataset  # noqa: E402
from d3rlpy.models import VectorEncoderFactory  # noqa: E402
from d3rlpy.optimizers import AdamFactory  # noqa: E402
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory  # noqa: E402


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


def iql(shared: dict[str, Any], encoder: Any) -> Any:
    return IQLConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        actor_optim_factory=AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=1_000_000)),
        critic_optim_factory=AdamFactory(),
        value_encoder_factory=encoder,
        expectile=0.7,
        weight_temp=3.0,
        max_weight=100.0,
        **shared,
    )


def cql(shared: dict[str, Any], encoder: Any) -> Any:
    """Without its Lagrange multiplier (alpha_learning_rate=0), as we: the penalty's weight is fixed."""
    return CQLConfig(
        actor_learning_rate=3e-5,
        critic_learning_rate=3e-4,
        temp_learning_rate=3e-5,
        alpha_learning_rate=0.0,
        initial_alpha=1.0,
        conservative_weight=10.0,
        n_action_samples=10,
        soft_q_backup=False,
        max_q_backup=False,
        **shared,
    )


def td3bc(shared: dict[str, Any], encoder: Any) -> Any:
    return TD3PlusBCConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        target_smoothing_sigma=0.2,
        target_smoothing_clip=0.5,
        alpha=2.5,
        update_actor_interval=2,
        **shared,
    )


CONFIGS = {"iql": iql, "cql": cql, "td3bc": td3bc}


def measure(options: argparse.Namespace) -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    encoder = VectorEncoderFactory(hidden_units=[HIDDEN] * options.layers)
    networks = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder, "n_critics": 2}
    config = CONFIGS[options.kind]({**networks, "batch_size": BATCH, "gamma": 0.99, "tau": 0.005}, encoder)
    dataset, algorithm = million_rows(), config.create(device="cpu")
    algorithm.create_impl((OBSERVATION,), ACTION)

    def run(updates: int) -> None:
        for _ in range(updates):
            algorithm.update(dataset.sample_transition_batch(BATCH))

    serve("d3rlpy", run, options)


def measure_sampling(options: argparse.Namespace) -> None:
    dataset = million_rows()

    def run(batches: int) -> None:
        for _ in range(batches):
            dataset.sample_transition_batch(BATCH)

    serve("d3rlpy", run, options)


def main() -> None:
    options = arguments(**dict.fromkeys((*CONFIGS, "sampling"), offline_options))
    (measure_sampling if options.kind == "sampling" else measure)(options)


if __name__ == "__main__":
    main()
