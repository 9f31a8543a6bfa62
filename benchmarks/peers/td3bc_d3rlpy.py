"""Peer: d3rlpy's TD3+BC. Start it with the python of a virtualenv holding requirements-d3rlpy.txt."""

from _d3rlpy_data import measure, started
from _windows import BATCH
from d3rlpy.algos import TD3PlusBCConfig


def main() -> None:
    options, encoder = started()
    config = TD3PlusBCConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        batch_size=BATCH,
        gamma=0.99,
        tau=0.005,
        n_critics=2,
        target_smoothing_sigma=0.2,
        target_smoothing_clip=0.5,
        alpha=2.5,
        update_actor_interval=2,
    )
    measure(config, options)


if __name__ == "__main__":
    main()
