"""Who is pruned, what a run is worth, and what is said at the end: rules, each alone."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

import understudy as us
from understudy.run.config import RunConfig
from understudy.run.rundir import RunDir
from understudy.tools.trials import Watch
from understudy.tools.tuning.confirm import Candidate, Confirmed, distinct, number, ranked, verdict
from understudy.tools.tuning.criteria import last_mean
from understudy.tools.tuning.plan import GIVEN
from understudy.tools.tuning.study import TrialRow
from understudy.tools.tuning.trial import PrunedError, Work, falls_behind, finish
from worlds import tiny_config

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'understudy-rl[tune]'")


def test_a_run_falls_behind_exactly_where_optunas_median_pruner_says_so() -> None:
    rng, said = np.random.default_rng(0), []
    for _ in range(200):
        lowest, steps = bool(rng.integers(2)), 10 * (1 + np.arange(rng.integers(1, 5)))
        others = [_curve(rng, steps) for _ in range(rng.integers(2, 12))]
        own = _curve(rng, steps)
        study = optuna.create_study(
            direction="minimize" if lowest else "maximize",
            pruner=optuna.pruners.MedianPruner(5, n_warmup_steps=20, n_min_trials=3),
        )
        study.add_trials([optuna.create_trial(value=0.0, intermediate_values=dict(one)) for one in others])
        trial = study.ask()
        for step, value in own.items():
            trial.report(value, step)
        said.append(falls_behind(own, others, 20, lowest=lowest))
        assert said[-1] == trial.should_prune()
    assert 20 < sum(said) < 150


@final
class Judge:
    """A trial that hears of evaluations, and is not worth going on with from some update on."""

    number = 0

    def __init__(self, until: int) -> None:
        self.heard: list[int] = []
        self._until = until

    def report(self, value: float, step: int) -> None:
        self.heard.append(step)

    def should_prune(self) -> bool:
        return self.heard[-1] >= self._until

    def set_user_attr(self, key: str, value: Any) -> None:
        """Nothing is kept."""


def test_whoever_takes_up_a_run_hears_of_what_it_did_before(tmp_path: Path, no_plots: None) -> None:
    config = tiny_config("bc", tmp_path / "run", updates=6, eval_every=2, log_every=2, save_every=2)
    us.train(config, progress=False, callbacks=[lambda updates, evaluation: updates == 4])
    worse, better = Judge(until=4), Judge(until=6)  # who falls behind at the very end has reached it
    with pytest.raises(PrunedError, match="behind the median at update 4"):
        finish(config, Work(), Watch(worse, config))
    assert worse.heard == [2, 4]
    assert not RunDir(config.out).finished
    assert finish(config, Work(), Watch(better, config)).finished
    assert better.heard == [2, 4, 6]


def _curve(rng: np.random.Generator, steps: np.ndarray) -> dict[int, float]:
    return {int(step): math.nan if rng.random() < 0.1 else float(rng.normal()) for step in steps}


@pytest.fixture(autouse=True)
def _quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_a_run_is_worth_its_last_evaluations_and_not_its_best(tmp_path: Path) -> None:
    config = tiny_config("bc", tmp_path)
    curve = [{"updates": number, "eval/return_mean": value} for number, value in enumerate((1.0, 99.0, 4.0, 6.0))]
    assert last_mean(curve, config, 1) == 6.0
    assert last_mean(curve, config, 2) == 5.0
    assert last_mean(curve, config, 9) == 27.5
    assert math.isnan(last_mean([], config, 1))


def test_evaluations_that_gave_no_number_are_left_out(tmp_path: Path) -> None:
    error = {"best": "eval/speed_error", "eval_metrics": {"speed_error": SPEED}}
    config: RunConfig = tiny_config("bc", tmp_path, **error)
    curve: list[dict[str, Any]] = [{"updates": 1, "eval/speed_error": 3.0}, {"updates": 2}]
    assert last_mean(curve, config, 2) == 3.0
    assert math.isnan(last_mean(curve, config, 1))


SPEED: dict[str, Any] = {"kind": "tracking_error", "command": [1.0], "measured": "info.x_velocity"}


def result(name: str, search: float | None, *values: float, failures: Mapping[str, str] | None = None) -> Confirmed:
    seeds = {str(seed): value for seed, value in enumerate(values)}
    return Confirmed(Candidate(name, (), search), seeds, failures or {})


def test_the_best_are_tried_again_each_once_and_the_config_itself_is_no_rival_of_its_own() -> None:
    def row(number: int, word: str) -> TrialRow:
        return TrialRow(number, "complete", {"algo.epochs": word}, 0.0, {}, "", (), 0.0)

    best_first = [row(4, "a"), row(1, "b"), row(2, "a"), row(3, "c"), row(5, "b")]
    assert [one.number for one in distinct(best_first)] == [4, 1, 3]
    tied = [result("3", 5.0, 2.0, 4.0), result(GIVEN, 4.0, 3.0, 3.0), result("1", 6.0, 1.0, 1.0)]
    assert [one.candidate.name for one in ranked(tied, lowest=False)] == [GIVEN, "3", "1"]
    assert [one.candidate.name for one in ranked(tied, lowest=True)] == ["1", GIVEN, "3"]
    failed = [result("2", 9.0, 9.0, failures={"1": "diverged"}), *tied]
    assert [one.candidate.name for one in ranked(failed, lowest=False)] == [GIVEN, "3", "1", "2"]


def test_the_shrinkage_is_said_and_fresh_seeds_decide() -> None:
    found = [
        result("3", 80.0, 79.0, 80.0, 81.0, 78.0, 82.0),
        result("7", 92.0, 70.0, 71.0, 69.0, 70.0, 70.0),
        result(GIVEN, 60.0, 60.0, 61.0, 59.0, 60.0, 60.0),
    ]
    shrank, winner, gain = verdict(found, lowest=False, seeds=5)
    assert shrank.startswith("The search's 92.0 (trial 7) became 70.0 (95 % 69.")
    assert shrank.endswith(" on 5 fresh seeds.")
    assert winner.startswith("On these, trial 3 is the best: 80.0 (95 % 7")
    assert "The config as it was given: 60.0" in gain
    assert "trial 3 is better by 20.0 (95 % 18." in gain
    assert "chance" not in gain


def test_a_gain_that_may_be_chance_is_called_so_and_less_of_an_error_is_more() -> None:
    found = [result("1", 0.1, 0.2, 0.5, 0.3, 0.4), result(GIVEN, 0.3, 0.3, 0.6, 0.4, 0.5)]
    shrank, gain = verdict(found, lowest=True, seeds=4)
    assert shrank.startswith("The search's 0.1 (trial 1) became 0.35 ")
    assert gain.endswith("trial 1 is better by 0.1, which may be chance: these seeds do not tell them apart.")
    clear = [result("1", 0.1, 0.1, 0.2, 0.3, 0.4), result(GIVEN, 0.3, 1.3, 1.6, 1.4, 1.5)]
    assert "trial 1 is better by 1.2 (95 % 1" in verdict(clear, lowest=True, seeds=4)[-1]
    assert "chance" not in verdict(clear, lowest=True, seeds=4)[-1]


def test_however_large_a_gain_is_a_few_seeds_may_be_lucky() -> None:
    for seeds in (2, 3):
        found = [result("1", 9.0, *([9.0] * seeds)), result(GIVEN, 1.0, *([1.0] * seeds))]
        assert verdict(found, lowest=False, seeds=seeds)[-1].endswith(
            "trial 1 is better by 8, which may be chance: it takes 4 to tell."
        )


def test_where_nobody_is_better_a_winner_is_rarely_called_so() -> None:
    """The best of three by chance, on five seeds: its interval alone would say so about one time in seven."""
    rng, called = np.random.default_rng(0), 0
    for _ in range(200):
        rows = rng.normal(size=(4, 5))
        found = [result(name, 0.0, *row) for name, row in zip(("1", "2", "3", GIVEN), rows, strict=True)]
        told = verdict(ranked(found, lowest=False), lowest=False, seeds=5)[-1]
        called += "is better by" in told and "chance" not in told
    assert called <= 0.05 * 200


def test_nothing_better_and_nothing_at_all_are_said() -> None:
    found = [result(GIVEN, 70.0, 70.0, 72.0), result("4", 90.0, 50.0, 52.0)]
    assert verdict(found, lowest=False, seeds=2)[1:] == [
        "On these, as given is the best: 71.0 (95 % 70.0 to 72.0).",
        "Nothing that was searched does better than the config as it was given.",
    ]
    tied = [result(GIVEN, 70.0, 72.0, 72.0), result("4", 90.0, 72.0, 72.0)]
    assert verdict(tied, lowest=False, seeds=2)[1:] == [
        "Nothing that was searched does better than the config as it was given."
    ]
    lost = [result("4", 90.0, failures={"1": "diverged"}), result(GIVEN, None, failures={"1": "diverged"})]
    assert verdict(lost, lowest=False, seeds=2) == [
        "The search's 90.0 (trial 4) failed on 1 of 2 fresh seeds.",
        "Every one of the best failed on a fresh seed: nothing is confirmed.",
    ]


def test_one_fresh_seed_says_nothing_of_others() -> None:
    found = [result("1", 10.0, 9.0), result(GIVEN, 5.0, 5.0)]
    assert verdict(found, lowest=False, seeds=1) == [
        "The search's 10.0 (trial 1) became 9 on 1 fresh seed.",
        "The config as it was given: 5; trial 1 is better by 4, and one seed each cannot say whether by chance.",
    ]


def test_numbers_have_as_many_digits_as_their_size_deserves() -> None:
    assert [number(value) for value in (12345.6, -1234.5, 82.14, -151.23, 0.04321, 0.0)] == [
        "12,346",
        "-1,234",
        "82.1",
        "-151.2",
        "0.0432",
        "0",
    ]
