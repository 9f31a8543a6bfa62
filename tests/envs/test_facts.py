"""Facts of environments."""

from importlib.util import find_spec

import gymnasium
import pytest

from understudy.core.errors import ConfigError
from understudy.envs.facts import ENDING, ENDLESS, can_terminate, registered, time_limit


@pytest.mark.parametrize(
    ("env_id", "limit"),
    [("Pendulum-v1", 200), ("CartPole-v0", 200), ("CartPole-v1", 500), ("Hopper-v2", 1000), ("Reacher-v5", 50)],
)
def test_time_limits(env_id: str, limit: int) -> None:
    assert time_limit(env_id) == limit


def test_no_time_limit() -> None:
    assert time_limit("Blackjack-v1") is None


@pytest.mark.parametrize(
    ("env_id", "can"),
    [
        ("Pendulum-v1", False),
        ("HalfCheetah-v4", False),
        ("Swimmer-v5", False),
        ("Hopper-v2", True),
        ("Taxi-v3", None),
        ("AdroitHandDoor-v1", False),
        ("FetchPushDense-v4", False),
        ("UnderstudyKitchenSlider-v0", True),
    ],
)
def test_what_can_terminate(env_id: str, can: bool | None) -> None:
    assert can_terminate(env_id) is can


def test_every_name_is_registered() -> None:
    registered("AdroitHandDoor-v1")  # imports the package that brings these
    known = {env_id.rpartition("-v")[0] for env_id in gymnasium.registry}
    if find_spec("pybullet_envs_gymnasium") is None:
        known.add("HalfCheetahBulletEnv")
    assert known >= ENDING | ENDLESS
    assert not ENDING & ENDLESS


def test_unknown_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'Pendulum-v1'"):
        time_limit("Pendulm-v1")
