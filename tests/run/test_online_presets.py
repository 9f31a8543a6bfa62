"""Presets of those who learn by replay: every number as its source has it."""

from typing import Any

import pytest
from test_presets import flat

from shipped import command_words
from understudy.run.config import load_config

SB3_SAC: dict[str, Any] = {
    "algo.name": "sac",
    "algo.gamma": 0.99,
    "algo.polyak": 0.005,
    "algo.critics": 2,
    "algo.n_step": 1,
    "algo.actor_learning_rate": 3e-4,
    "algo.critic_learning_rate": 3e-4,
    "algo.entropy_weight": 1.0,
    "algo.entropy_learning_rate": 3e-4,
    "algo.entropy_target": -1.0,
    "algo.actor.hidden": [256, 256],
    "algo.actor.activation": "relu",
    "algo.actor.init": "default",
    "algo.actor.normalize": False,
    "algo.actor.distribution.log_std_min": -20.0,
    "algo.actor.distribution.log_std_max": 2.0,
    "algo.critic.hidden": [256, 256],
    "algo.critic.init": "default",
    "algo.critic.normalize": False,
    "source.kind": "replay",
    "source.num_envs": 1,
    "source.batch_size": 256,
    "source.buffer_size": 1_000_000,
    "source.learning_starts": 10_000,
    "source.utd_ratio": 1.0,
    "source.warmup": "random",
    "updates": 990_000,
}
"""Stable-Baselines3's defaults, and the warm-up of RL Baselines3 Zoo."""
REDQ: dict[str, Any] = SB3_SAC | {
    "algo.name": "redq",
    "algo.critics": 10,
    "algo.target_subset": 2,
    "algo.actor_values": "mean",
    "algo.policy_delay": 20,
    "algo.entropy_target": pytest.approx(-1 / 3, abs=1e-5),
    "algo.critic.layer_norm": False,
    "algo.critic.dropout": 0.0,
    "source.learning_starts": 5000,
    "source.utd_ratio": 20.0,
    "updates": 2_400_000,
}
DROQ = REDQ | {"algo.critics": 2, "algo.critic.layer_norm": True, "algo.critic.dropout": 0.01}
RLPD = REDQ | {
    "algo.entropy_target": -0.5,
    "algo.actor.normalize": True,
    "algo.critic.normalize": True,
    "data.normalize_observations": False,
    "algo.critic.layer_norm": True,
    "source.data_share.start": 0.5,
    "source.data_share.end": 0.5,
    "updates": 4_900_000,
}
TD3: dict[str, Any] = {
    "algo.name": "td3bc",
    "algo.alpha": 1.0,
    "algo.normalize_q": False,
    "algo.cloning_weight": 0.0,
    "algo.gamma": 0.99,
    "algo.polyak": 0.005,
    "algo.policy_delay": 2,
    "algo.target_noise": 0.2,
    "algo.target_noise_clip": 0.5,
    "algo.actor_learning_rate": 3e-4,
    "algo.critic_learning_rate": 3e-4,
    "algo.actor.hidden": [256, 256],
    "algo.critic.hidden": [256, 256],
    "source.kind": "replay",
    "source.batch_size": 256,
    "source.learning_starts": 25_000,
    "source.exploration_noise": 0.1,
    "updates": 975_000,
}
TABLE: dict[str, dict[str, Any]] = {
    "sac/hopper": SB3_SAC | {"env.id": "Hopper-v5"},
    "sac/halfcheetah": SB3_SAC | {"env.id": "HalfCheetah-v5"},
    "redq/hopper": REDQ | {"env.id": "Hopper-v5"},
    "droq/hopper": DROQ | {"env.id": "Hopper-v5"},
    "rlpd": RLPD,
    "td3": TD3,
    "td3/hopper": TD3 | {"env.id": "Hopper-v5"},
    "td3/halfcheetah": TD3 | {"env.id": "HalfCheetah-v5"},
}


def test_every_number_of_every_preset() -> None:
    for name, expected in TABLE.items():
        found = flat(load_config(name, command_words(name)))
        assert {key: found[key] for key in expected} == expected, name
