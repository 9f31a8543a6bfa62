"""Peer: d3rlpy's CQL. Start it with the python of a virtualenv holding requirements-d3rlpy.txt.

Without its Lagrange multiplier (alpha_learning_rate=0), as we: the penalty's weight is fixed.
"""

from _d3rlpy_data import measure, started
from _windows import BATCH
from d3rlpy.algos import CQLConfig


def main() -> None:
    options, encoder = started()
    config = CQLConfig(
        actor_learning_rate=3e-5,
        critic_learning_rate=3e-4,
        temp_learning_rate=3e-5,
        alpha_learning_rate=0.0,
        initial_alpha=1.0,
        conservative_weight=10.0,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        batch_size=BATCH,
        gamma=0.99,
        tau=0.005,
        n_critics=2,
        n_action_samples=10,
        soft_q_backup=False,
        max_q_backup=False,
    )
    measure(config, options)


if __name__ == "__main__":
    main()
