"""Settings of IQL that cannot mean anything are refused before the first step."""

import math

import pytest

from understudy.algorithms.iql import Config
from understudy.core.errors import ConfigError


@pytest.mark.parametrize("expectile", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf, "high", None, True])
def test_expectiles_outside_the_open_unit_interval(expectile: object) -> None:
    with pytest.raises(ConfigError, match="expectile"):
        Config.parse({"expectile": expectile}, "algo")


@pytest.mark.parametrize("beta", [-0.1, math.nan, math.inf, -math.inf, [], "sharp"])
def test_betas_that_are_not_a_number_from_zero_up(beta: object) -> None:
    with pytest.raises(ConfigError, match="beta"):
        Config.parse({"beta": beta}, "algo")


@pytest.mark.parametrize(
    "setting",
    [
        {"weight_ceiling": 1.0},
        {"gamma": 1.01},
        {"gamma": -0.1},
        {"polyak": 0.0},
        {"polyak": 1.1},
        {"n_step": 0},
        {"n_step": 1.5},
        {"actor_learning_rate": 0.0},
        {"actor_optimizer": {"schedule": "quadratic"}},
        {"critic": {"dropout": 1.0}},
        {"actor": {"distribution": "uniform"}},
    ],
)
def test_other_settings_out_of_range(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        Config.parse(setting, "algo")


@pytest.mark.parametrize("edge", [{"beta": 0.0}, {"gamma": 0.0}, {"gamma": 1.0}, {"polyak": 1.0}, {"expectile": 0.999}])
def test_edges_that_mean_something(edge: dict[str, object]) -> None:
    assert Config.parse(edge, "algo")


def test_temperature_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"half of the field means β by it and half means 1/β") as refusal:
        Config.parse({"temperature": 3.0}, "algo")
    assert "Use beta" in str(refusal.value)


def test_text_numbers_of_yaml_are_read() -> None:
    """PyYAML reads 3e-4 as a string; the field's type decides."""
    assert Config.parse({"actor_learning_rate": "3e-4"}, "algo").actor_learning_rate == 3e-4
