"""Those who learn from data refuse choices of several factors before anything begins."""

from pathlib import Path

import pytest

from understudy import Recipe
from understudy.core.errors import ConfigError
from understudy.run.build import check_config
from understudy.sources.playing.collect import recipe_spec
from worlds import CARTPOLE_RECIPE, tiny_config

THRUSTERS = "UnderstudyWindyThrusters-v0"


@pytest.mark.parametrize("algorithm", ["bc", "iql", "td3bc", "discrete_cql"])
def test_a_run_on_them_is_refused(algorithm: str, tmp_path: Path) -> None:
    config = tiny_config(algorithm, tmp_path / "run", env={"id": THRUSTERS})
    with pytest.raises(ConfigError, match=rf"its actions are not for {algorithm}: got one of 3 and one of 3"):
        check_config(config)


def test_no_recipe_plays_them() -> None:
    with pytest.raises(ConfigError, match="not stored in datasets"):
        recipe_spec(Recipe.parse({**CARTPOLE_RECIPE, "env": THRUSTERS}))
