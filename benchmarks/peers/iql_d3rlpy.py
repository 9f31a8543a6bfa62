"""Peer: d3rlpy's IQL. Start it with the python of a virtualenv holding requirements-d3rlpy.txt."""

from _d3rlpy_data import measure, started
from _windows import BATCH
from d3rlpy.algos import IQLConfig
from d3rlpy.optimizers import AdamFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory


def main() -> None:
    options, encoder = started()
    config = IQLConfig(
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
    )
    measure(config, options)


if __name__ == "__main__":
    main()
