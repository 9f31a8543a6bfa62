"""Runs read as results: who they are, what they were judged by, and which of them are seeds of one experiment."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import ConfigError, RunError, UnderstudyError
from understudy.run.config import RETURN
from understudy.tools.experiments.results import Result, Results, experiment_digest, read_results

SMALL: dict[str, Any] = {
    "updates": 4,
    "eval_every": 2,
    "eval_episodes": 2,
    "log_every": 2,
    "tensorboard": False,
    "source.num_envs": 2,
    "source.rollout_length": 16,
    "env.reference": [-1500, -150],
}


def train(out: Path, **settings: Any) -> us.Run:
    return us.train("ppo/pendulum", out=str(out), progress=False, **{**SMALL, **settings})


def test_runs_are_read_by_method_task_and_seed_with_what_they_were_judged_by(tmp_path: Path) -> None:
    runs = {
        (method, seed): train(tmp_path / method / str(seed), seed=seed, method=method, **{"algo.epochs": epochs})
        for method, epochs in (("few", 1), ("many", 3))
        for seed in (1, 0)
    }
    results = read_results([tmp_path, tmp_path / "few"])
    assert len(results.runs) == 4
    assert (results.methods, results.tasks) == (["few", "many"], ["Pendulum-v1"])
    assert [run.seed for run in results.of("few", "Pendulum-v1")] == [0, 1]
    assert results.common_metric() == "eval/score"
    table = results.scores("eval/score")
    for method in ("few", "many"):
        lines = [runs[method, seed].evaluations() for seed in (0, 1)]
        assert table[method]["Pendulum-v1"].tolist() == [line[-1]["eval/score"] for line in lines]
        for run, known in zip(results.of(method, "Pendulum-v1"), lines, strict=True):
            assert run.best("eval/score") == max(line["eval/score"] for line in known)
            updates, values = run.curve("eval/return_mean")
            assert updates.tolist() == [2, 4]
            assert values.tolist() == [line["eval/return_mean"] for line in known]
    few, many = (results.of(method, "Pendulum-v1") for method in ("few", "many"))
    assert few[0].experiment == few[1].experiment != many[0].experiment


def test_runs_that_are_not_finished_do_not_count_unless_they_are_asked_for(tmp_path: Path) -> None:
    whole, begun = (train(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    (begun.path / "result.json").unlink()
    results = read_results([tmp_path])
    last = [run.evaluations()[-1]["eval/score"] for run in (whole, begun)]
    assert results.scores("eval/score")["ppo"]["Pendulum-v1"].tolist() == last[:1]
    assert results.scores("eval/score", finished=False)["ppo"]["Pendulum-v1"].tolist() == last


def test_an_experiment_is_its_settings_updates_and_data_without_seed_place_and_name() -> None:
    config = us.load_config("iql/pendulum")
    same = us.load_config("iql/pendulum", ["seed=7", "out=elsewhere", "method=ours", "compile=true"])
    assert experiment_digest(config) == experiment_digest(same)
    for change in ("algo.beta=2", "updates=7", "data.fingerprint=ab", "eval_episodes=3"):
        assert experiment_digest(config) != experiment_digest(us.load_config("iql/pendulum", [change]))


def test_the_best_of_an_error_is_the_least_whatever_the_run_is_judged_by() -> None:
    lines = [{"updates": update, "eval/action_error": error} for update, error in ((1, 0.3), (2, 0.1), (3, 0.2))]
    run = Result(Path("run"), us.load_config("iql/pendulum"), "finished", lines)
    assert (run.config.best_metric, run.best("eval/action_error"), run.last("eval/action_error")) == (RETURN, 0.1, 0.2)
    most = us.load_config("iql/pendulum", ["best=eval/action_error", "best_is=highest"])
    assert Result(Path("run"), most, "finished", lines).best("eval/action_error") == 0.3


def test_what_was_never_measured_is_no_number(tmp_path: Path) -> None:
    train(tmp_path / "run", eval_every=0)
    results = read_results([tmp_path])
    assert np.isnan(results.runs[0].last("eval/return_mean"))
    assert np.isnan(results.runs[0].best("eval/return_mean"))
    assert not len(results.scores("eval/return_mean")["ppo"]["Pendulum-v1"])


def test_runs_that_are_judged_by_different_numbers_are_told(tmp_path: Path) -> None:
    train(tmp_path / "a")
    us.train("ppo/pendulum", out=str(tmp_path / "b"), progress=False, **{**SMALL, "best": "eval/length_mean"})
    with pytest.raises(ConfigError, match=r"judged by different numbers: eval/length_mean .* eval/score"):
        read_results([tmp_path]).common_metric()


def result(name: str, lines: list[dict[str, Any]], *settings: str) -> Result:
    return Result(Path(name), us.load_config("iql/pendulum", settings), "finished", lines)


def test_a_seed_that_ended_in_nan_is_no_seed_that_is_missing() -> None:
    """Left out unasked it would make its method better than it is."""
    measured: list[list[dict[str, Any]]]
    measured = [[{"updates": 1, "eval/score": 5.0, "returns": [1.0, 2.0]}, {"updates": 2, "eval/score": math.nan}], []]
    runs = [result(str(seed), lines, f"seed={seed}") for seed, lines in enumerate(measured)]
    scores = Results(runs).scores("eval/score")["iql"]["Pendulum-v1"]
    assert np.isnan(scores).tolist() == [True]
    with pytest.raises(UnderstudyError, match="must be finite numbers: got nan"):
        us.statistics.mean([scores])
    assert Results(runs).scores("eval/score", Result.best)["iql"]["Pendulum-v1"].tolist() == [5]
    for wrong, do in (("eval/scroe", "Did you mean 'eval/score'"), ("returns", "eval/score")):
        with pytest.raises(ConfigError, match=f"metric: no run has '{wrong}'.*{do}"):
            Results(runs).scores(wrong)


def test_what_is_not_one_experiment_with_different_seeds_is_not_mixed_into_one_cell() -> None:
    lines = [{"updates": 1, "eval/score": 5.0}]
    one, two = result("a", lines, "seed=0"), result("b", lines, "seed=1")
    assert Results([one, two]).scores("eval/score")["iql"]["Pendulum-v1"].tolist() == [5, 5]
    with pytest.raises(RunError, match="'iql' on 'Pendulum-v1': 'a' and 'copy' are the same seed: got 0"):
        Results([one, two, result("copy", lines, "seed=0")]).scores("eval/score")
    with pytest.raises(RunError, match=r"'b' and 'c' differ in more than their seed.*Give them names \(method=…\)"):
        Results([one, two, result("c", lines, "seed=2", "algo.expectile=0.6")]).scores("eval/score")


def test_folders_without_runs_are_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        read_results([tmp_path])
    with pytest.raises(RunError, match="no such folder"):
        read_results([tmp_path / "missing"])
