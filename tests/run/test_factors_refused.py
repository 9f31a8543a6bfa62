"""Actions that an algorithm does not know are refused before anything begins, with the one that knows them."""

from pathlib import Path

import pytest

from understudy import Recipe
from understudy.core.errors import ConfigError
from understudy.run.build import check_config
from understudy.run.config import parse_config
from understudy.sources.playing.collect import recipe_spec
from worlds import CARTPOLE_RECIPE, tiny_config

THRUSTERS = "UnderstudyWindyThrusters-v0"


@pytest.mark.parametrize("algorithm", ["bc", "iql", "td3bc", "discrete_cql"])
def test_a_run_on_them_is_refused(algorithm: str, tmp_path: Path) -> None:
    config = tiny_config(algorithm, tmp_path / "run", env={"id": THRUSTERS})
    with pytest.raises(ConfigError, match=rf"its actions are not for {algorithm}: got one of 3 and one of 3"):
        check_config(config)


@pytest.mark.parametrize(
    ("algorithm", "env", "other"),
    [("sac", "CartPole-v1", "discrete_sac"), ("discrete_sac", "Pendulum-v1", "sac"), ("redq", "CartPole-v1", "")],
)
def test_the_twin_that_knows_them_is_named(algorithm: str, env: str, other: str, tmp_path: Path) -> None:
    config = parse_config({"algo": algorithm, "env": {"id": env}, "out": str(tmp_path / "run"), "updates": 10})
    with pytest.raises(ConfigError, match=rf"its actions are not for {algorithm}: got .*\.") as refusal:
        check_config(config)
    assert str(refusal.value).endswith(f"Use algo.name={other}." if other else ".")
    assert ("Use" in str(refusal.value)) == bool(other)


def test_no_recipe_plays_them() -> None:
    with pytest.raises(ConfigError, match="not stored in datasets"):
        recipe_spec(Recipe.parse({**CARTPOLE_RECIPE, "env": THRUSTERS}))
