"""A search without an environment: trials are worth what fitted Q evaluation expects of them."""

from pathlib import Path

import pytest

import understudy as us
from understudy.core.errors import ConfigError
from understudy.run.run import Run
from understudy.tools.tuning.criteria import CRITERIA, KEPT
from worlds import tiny_settings

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")


def test_who_reads_no_data_cannot_be_judged_from_it(tmp_path: Path) -> None:
    config = tiny_settings("ppo", tmp_path / "run")
    with pytest.raises(ConfigError, match="--metric: fqe judges from data, and this config reads none"):
        us.tune(config, {"algo.epochs": [1, 2]}, metric="fqe", out=tmp_path / "tune", progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_trials_are_worth_what_fqe_says_and_are_judged_once(tmp_path: Path, no_plots: None) -> None:
    config = tiny_settings("bc", tmp_path / "run", updates=4, eval_every=0, log_every=4, save_every=4)
    space = {"algo.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
    made = us.tune(config, space, metric="fqe", trials=2, top=1, fresh=1, out=tmp_path / "tune", progress=False)
    for row in made.trials:
        place = tmp_path / "tune" / "trials" / str(row.number) / "0"
        assert (place / KEPT).is_dir()
        assert row.value == CRITERIA["fqe"]().value(Run(place))
    assert made.metric == "fqe"
