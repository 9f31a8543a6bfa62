"""Settings of CQL that cannot mean anything are refused before the first step."""

import pytest

from understudy.algorithms.cql import Config
from understudy.core.errors import ConfigError


@pytest.mark.parametrize(
    "setting",
    [
        {"penalty": "cql_x"},
        {"penalty_weight": -1.0},
        {"penalty_temperature": 0.0},
        {"sampled_actions": 0},
        {"lagrange_form": "official"},
        {"max_backup": "max"},
        {"warm_start": -1},
        {"entropy_weight": 0.0},
        {"polyak": 0.0},
        {"actor": {"distribution": "tanh_mean_gaussian"}},
        {"clip_diff_min": 2.0, "clip_diff_max": 1.0},
        {"backup_entropy": True, "max_backup": "max_min"},
    ],
)
def test_out_of_range(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        Config.parse(setting, "algo")


def test_a_network_of_another_width_keeps_its_distribution() -> None:
    """Settings of a part are merged with CQL's own defaults, not with another algorithm's."""
    config = Config.parse({"actor": {"hidden": [8]}, "critic": {"init": "default"}}, "algo")
    assert (config.actor.distribution.kind, config.actor.init) == ("tanh_gaussian", "default")
    assert config.critic.hidden == (256, 256, 256)


def test_defaults_are_corls_for_locomotion() -> None:
    config = Config()
    assert (config.penalty_weight, config.sampled_actions, config.lagrange) == (10.0, 10, False)
    assert (config.actor_learning_rate, config.critic_learning_rate) == (3e-5, 3e-4)
    assert config.actor.hidden == config.critic.hidden == (256, 256, 256)
