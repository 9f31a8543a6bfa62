"""A search without an environment: trials are worth what fitted Q evaluation expects of them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import ConfigError, DataError, DivergenceError
from understudy.run.run import Run
from understudy.tools.experiments.work import Outcome
from understudy.tools.tuning.criteria import KEPT, fitted_q
from understudy.tools.tuning.plan import Plan
from understudy.tools.tuning.worker import Orders, work
from worlds import tiny_settings

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")

BRIEF = "fqe:updates=20,seeds=1"
SPACE = {"algo.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


def brief(out: Path) -> dict[str, Any]:
    return tiny_settings("bc", out, updates=4, eval_every=0, log_every=4, save_every=4)


def test_who_reads_no_data_cannot_be_judged_from_it(tmp_path: Path) -> None:
    config = tiny_settings("ppo", tmp_path / "run")
    with pytest.raises(ConfigError, match="--metric: fqe judges from data, and this config reads none"):
        us.tune(config, {"algo.epochs": [1, 2]}, metric="fqe", out=tmp_path / "tune", progress=False)
    assert not list(tmp_path.iterdir())


def test_data_that_says_nothing_of_rewards_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    one = {"observations": np.zeros((6, 3), np.float32), "actions": np.linspace(-1, 1, 5)[:, None], "truncated": True}
    us.write_store(us.load_dataset([one] * 4, action_space=us.Box((-1.0,), (1.0,))), tmp_path / "silent")
    config = {**brief(tmp_path / "run"), "data": {"path": str(tmp_path / "silent")}, "env": None}
    with pytest.raises(DataError, match="has no rewards: there is nothing to judge by"):
        us.tune(config, SPACE, metric=BRIEF, out=tmp_path / "tune", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["silent"]


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("fqe:update=3", "no such setting of fqe: got 'update=3'. Did you mean 'updates'?"),
        ("fqe:updates=many", "--metric fqe: updates: wrong value: got 'many', expected a number"),
        ("fqe:seeds=0", "seeds: too small"),
        ("fqe:gamma=2", "gamma: out of range"),
    ],
)
def test_mistakes_about_it_are_told(metric: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        fitted_q(metric)
    assert told in str(error.value)


def test_trials_are_worth_what_fqe_says_and_all_are_judged_once_by_who_trained_them(
    tmp_path: Path, no_plots: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for draw in ("draw_history", "draw_slices"):
        monkeypatch.setattr(f"understudy.tools.tuning.outcome.{draw}", lambda *told: told[-1])
    config, out, orders = brief(tmp_path / "run"), tmp_path / "tune", Orders(2, top=1, fresh=1, retries=0)
    out.mkdir()
    Plan.make(config, SPACE, {}, metric=BRIEF).write(out)
    for fresh_only in (False, True):
        told = work(str(out), replace(orders, fresh_only=fresh_only).words())
        assert Outcome.from_json(told) == Outcome("finished")
    judged = {path.parent.relative_to(out) for path in out.rglob(KEPT)}
    made = us.tune(config, SPACE, metric=BRIEF, trials=2, top=1, fresh=1, out=out, progress=False)
    runs = [path.parent.relative_to(out) for path in out.rglob("result.json")]
    assert judged == set(runs)
    places = [tmp_path / "tune" / "trials" / str(row.number) / "0" for row in made.trials]
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob(f"{KEPT}/*") if path.is_file()}
    assert len(runs) == 4
    assert [row.value for row in made.trials] == [fitted_q(BRIEF).value(Run(place)) for place in places]
    for one in made.confirmed:
        fresh = Run(tmp_path / "tune" / "confirmed" / one.candidate.name / "1")
        assert one.values == {"1": fitted_q(BRIEF).value(fresh)}
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (made.metric, made.lowest, made.best.config.best_lowest) == (BRIEF, False, False)


def test_critics_that_diverged_say_nothing(tmp_path: Path, no_plots: None) -> None:
    """However large the value is that they came to."""
    run = us.train(brief(tmp_path / "run"), progress=False)
    assert math.isfinite(fitted_q(BRIEF).value(run))
    wild = fitted_q("fqe:updates=300,seeds=1,learning_rate=1,polyak=1,gamma=0.999")
    with pytest.raises(DivergenceError, match="critics that judge its policy diverged"):
        wild.value(run)
