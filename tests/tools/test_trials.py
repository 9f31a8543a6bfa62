"""Runs as trials of a real Optuna study: what is reported, what is pruned, where it lies."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import RunConfig, parse_config
from worlds import tiny_settings

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")
ALGORITHMS = ("bc", "ppo")
BEATS: dict[str, Any] = {"updates": 6, "log_every": 3, "eval_every": 2, "save_every": 5}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plots, and nobody reads Optuna's log of every trial."""
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def tiny(algorithm: str, out: Path, **changes: Any) -> RunConfig:
    return parse_config(tiny_settings(algorithm, out, **BEATS, **changes))


def study_of(objective: Callable[[Any], float], trials: int, pruner: Any, **options: Any) -> Any:
    study = optuna.create_study(**{"direction": "maximize", "pruner": pruner, **options})
    study.optimize(objective, n_trials=trials)
    return study


def returns(run: us.Run) -> dict[int, float]:
    return {line["updates"]: line["eval/return_mean"] for line in run.evaluations()}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_evaluation_is_reported_at_its_updates(algorithm: str, tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        run = us.train_trial(tiny(algorithm, tmp_path / "run", seed=trial.number), trial)
        return float(run.result["eval/return_mean"])

    study = study_of(objective, 2, optuna.pruners.NopPruner())
    for trial in study.trials:
        run = us.Run(tmp_path / f"run-trial-{trial.number}")
        assert trial.user_attrs["run"] == str(run.path)
        assert trial.intermediate_values == returns(run)
        assert sorted(trial.intermediate_values) == [2, 4, 6]
        assert trial.value == trial.intermediate_values[6]
        assert run.config.seed == trial.number


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_pruned_trial_is_saved_and_can_be_taken_up_again(algorithm: str, tmp_path: Path) -> None:
    """A threshold that no return reaches prunes at the first evaluation after the warm-up."""
    pruner = optuna.pruners.ThresholdPruner(lower=1e9, n_warmup_steps=4)
    config = tiny(algorithm, tmp_path / "run")
    study = study_of(lambda trial: len(us.train_trial(config, trial).evaluations()), 1, pruner)
    (trial,) = study.trials
    path = tmp_path / "run-trial-0"
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert sorted(trial.intermediate_values) == [2, 4]
    assert list_checkpoints(path / "checkpoints") == [4]
    assert not (path / "result.json").exists()

    us.resume(path)
    assert returns(us.Run(path)) == returns(us.train(tiny(algorithm, tmp_path / "whole")))


def test_the_median_pruner_ends_who_falls_behind(tmp_path: Path) -> None:
    """Returns of this world say nothing about learning, so the third trial plays where every step is worse."""

    def objective(trial: Any) -> float:
        config = tiny("ppo", tmp_path / "run", env={"id": "Pendulum-v1" if trial.number == 2 else "CartPole-v1"})
        return float(us.train_trial(config, trial).result["eval/return_mean"])

    study = study_of(objective, 3, optuna.pruners.MedianPruner(n_startup_trials=2))
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert sorted(study.trials[2].intermediate_values) == [2]


def test_the_error_says_what_was_pruned_and_how_to_go_on(tmp_path: Path) -> None:
    class Pruned(optuna.trial.FixedTrial):  # type: ignore[misc, name-defined, unused-ignore]
        def should_prune(self) -> bool:
            return True

    with pytest.raises(optuna.TrialPruned) as pruned:
        us.train_trial(tiny("bc", tmp_path / "run"), Pruned({}, number=7))
    path = tmp_path / "run-trial-7"
    assert str(pruned.value) == f"pruned at update 2; go on with: understudy resume {path}"


def test_settings_and_out_are_those_of_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_ppo = {**BEATS, "eval_episodes": 1, "source.num_envs": 2, "source.rollout_length": 8, "algo.minibatches": 1}
    trial = optuna.trial.FixedTrial({}, number=3)
    assert us.train_trial("ppo/pendulum", trial, seed=5, **tiny_ppo).path == Path("runs/ppo/pendulum/5-trial-3")
    assert us.train_trial("ppo/pendulum", trial, out="mine", **tiny_ppo).path == Path("mine")
    assert trial.user_attrs["run"] == "mine"
    with pytest.raises(RunError, match="already holds a finished run"):
        us.train_trial("ppo/pendulum", trial, out="mine", **tiny_ppo)
    assert us.train_trial("ppo/pendulum", trial, out="mine", overwrite=True, **tiny_ppo).finished
    assert us.train_trial(tiny("bc", tmp_path / "run"), trial, seed=1).config.seed == 1


def test_data_and_environment_may_be_objects(tmp_path: Path) -> None:
    heard: list[int] = []
    rng = np.random.default_rng(0)
    one = {
        "observations": rng.normal(size=(6, 3)),
        "actions": rng.uniform(-2, 2, (5, 1)),
        "rewards": rng.normal(size=5),
    }
    given: dict[str, Any] = {"data": [{**one, "truncated": True}] * 2, "env": lambda: gymnasium.make("Pendulum-v1")}
    trial = optuna.trial.FixedTrial({}, number=0)
    networks = {"actor": {"hidden": [8]}, "critic": {"hidden": [8]}}
    watching: dict[str, Any] = {"callbacks": [lambda updates, evaluation: heard.append(updates)], "progress": False}
    run = us.train_trial(
        "iql", trial, out=tmp_path / "run", algo=networks, eval_episodes=1, **BEATS, **given, **watching
    )
    assert heard == [2, 4, 6]
    assert run.evaluate(1, progress=False).mean == run.result["eval/return_mean"]


@pytest.mark.parametrize(
    ("options", "got"),
    [({"direction": None}, "minimize"), ({"direction": None, "directions": ["maximize"] * 2}, "maximize and maximize")],
)
def test_a_study_that_would_prune_the_best_is_refused(options: dict[str, Any], got: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"study: .* got {got}, expected maximize. Make it with optuna.create_study"):
        study_of(lambda trial: us.train_trial(tiny("bc", tmp_path / "run"), trial).config.seed, 1, None, **options)
    assert not list(tmp_path.iterdir())


def test_without_optuna_a_sentence_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = optuna.trial.FixedTrial({})
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPackageError, match=r"train_trial: needs optuna .* pip install 'understudy-rl\[tune\]'"):
        us.train_trial(tiny("bc", tmp_path / "run"), trial)
    assert not list(tmp_path.iterdir())
