"""One sentence that claims no more than the seeds bear out, whatever the table looks like."""

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray

import understudy as us
from understudy.core.errors import UnderstudyError
from understudy.tools.experiments.forecast import Forecast
from understudy.tools.experiments.sequential import Decision, Decisions, Design, decide
from understudy.tools.experiments.statistics import interval, iqm, paired_interval, probability_of_improvement
from understudy.tools.experiments.verdict import summary, verdict

Array = NDArray[np.float64]
SEEDS = np.array([-3.0, -1, 0, 1, 3])
TASKS = ("hopper", "walker", "cheetah")


def table(seeds: Array = SEEDS, **means: float) -> dict[str, dict[str, Array]]:
    return {method: {task: np.add(seeds, mean) for task in TASKS} for method, mean in means.items()}


def test_who_is_better_is_said_with_its_numbers() -> None:
    scores = table(IQL=75, BC=60)
    ours, theirs = ([*scores[method].values()] for method in ("IQL", "BC"))
    known = interval(iqm, ours), interval(iqm, theirs), paired_interval(probability_of_improvement, ours, theirs)
    numbers = [f"{one.value:.1f} [{one.low:.1f}, {one.high:.1f}]" for one in known[:2]]
    assert verdict(scores) == (
        f"IQL is better than BC on 3 tasks: IQM {numbers[0]} against {numbers[1]}, "
        "P(improvement) 1.00 [1.00, 1.00], 5 seeds."
    )
    turned = verdict(scores, lowest_is_best=True)
    assert turned.startswith(
        f"BC is better than IQL on 3 tasks: IQM {numbers[1]} against {numbers[0]}, P(improvement) 1.00"
    )
    one_task = {method: {"hopper": row["hopper"]} for method, row in scores.items()}
    assert verdict(one_task).startswith("IQL is better than BC on hopper: ")


def test_of_many_the_next_best_is_named() -> None:
    told = verdict(table(A=10, B=30, C=50, D=70, E=90))
    assert told.startswith("E is better than all 4 others on 3 tasks: IQM 90.0 [")
    assert " against 70.0 [" in told
    assert "] of D, P(improvement) 1.00" in told
    assert verdict(table(A=10, B=30, C=50)).startswith("C is better than A and B on 3 tasks")


def test_what_cannot_be_told_is_said_with_what_it_would_take() -> None:
    told = verdict(table(SEEDS[:3], IQL=75, CQL=74.9, BC=20))
    assert told.startswith("Cannot tell IQL from CQL on 3 tasks with 3 seeds (IQM IQL 73.")
    assert told.endswith("; more seeds will hardly help; IQL is better than BC.")
    near = verdict(table(SEEDS[:3], A=75, B=74))
    assert near.startswith("Cannot tell A from B on 3 tasks with 3 seeds")
    assert verdict(table(SEEDS[:3], A=75, B=74), lowest_is_best=True).startswith("Cannot tell B from A on 3 tasks")
    assert "; about 3 more seeds would." in near  # V = 2·7/3/3, D = 1: 6 in all
    forecasts = [Forecast("B", "A", 7.0, 1.0, 9.0, 0.5)]
    assert "; about 7 more seeds would." in verdict(table(SEEDS[:3], A=75, B=74), forecasts=forecasts)
    unknown = [Forecast("A", "B", math.nan, math.nan, math.nan, math.nan)]
    assert verdict(table(SEEDS[:3], A=75, B=74), forecasts=unknown) == near
    assert verdict(table(A=5, B=5, C=5)).startswith("Cannot tell A from B or C on 3 tasks with 5 seeds")


def test_of_many_that_cannot_be_told_apart_the_next_best_stands_for_all() -> None:
    told = verdict(table(10 * SEEDS, A=59, B=57, C=55, D=58, E=56))
    assert told.startswith("Cannot tell A from B, C, D or E on 3 tasks with 5 seeds (IQM A 59.0 [")
    assert "], D 58.0 [" in told
    assert told.count("[") == 2
    many = {f"m{number}": 50 + number / 10 for number in range(12)}
    told = verdict(table(10 * SEEDS, **many))
    assert told.startswith("Cannot tell m11 from any of the 11 others on 3 tasks with 5 seeds (IQM m11 51.1 [")
    assert "m0" not in told
    crowd = verdict(table(SEEDS[:3], A=75, B=74, **{f"m{number}": 60 - number for number in range(10)}))
    assert "; about 15 more seeds would" in crowd, "of two 3 would: each of 66 pairs has a smaller share of the error"
    assert verdict(table(SEEDS[:1], **many)) == "One seed each: nothing can be said of 12 methods."
    told = verdict(table(SEEDS, A=90, B=90, **many))
    assert told.endswith("; A is better than the 12 others.")


def test_where_some_can_be_told_from_the_leader_it_is_said_how_many() -> None:
    forecasts = [
        Forecast("A", other, more, more, more, 0.5) for other, more in (("B", 4.0), ("C", 8.0), ("D", math.inf))
    ]
    told = verdict(table(SEEDS[:2], A=75, B=74, C=74.5, D=74.9), forecasts=forecasts)
    assert "; about 8 more seeds would tell 2 of them." in told
    assert "; more seeds will hardly help." in verdict(table(SEEDS[:2], A=75, D=74.9), forecasts=forecasts)


def test_decisions_of_the_sequential_test_decide() -> None:
    scores = table(A=75, B=72, C=20)
    strict = decide(scores, Design(alpha=1e-9))
    assert verdict(scores, decisions=strict).startswith("Cannot tell A from B or C")
    baseline = decide(scores, pairs=[("C", "A"), ("C", "B")])
    assert verdict(scores, decisions=baseline).startswith("A is better than C on 3 tasks")
    few = {method: scores[method] for method in ("A", "C")}
    with_other_methods = decide(scores)
    assert verdict(few, decisions=with_other_methods).startswith("A is better than C")
    only = decide(table(D=1, E=9))
    assert verdict(few, decisions=only) == "Nothing can be compared yet: there are results of A and C alone."


def test_too_little_is_said_to_be_too_little() -> None:
    assert verdict({}) == "There are no results yet."
    assert verdict({"A": {"hopper": []}}) == "There are no results yet."
    assert verdict(table(SEEDS[:1], IQL=75, BC=60)) == "One seed each: nothing can be said of IQL and BC."
    single = {**table(A=1), **table(SEEDS[:1], B=50)}
    assert verdict(single).startswith("One seed of B on some task: nothing can be said yet")
    apart = {"A": {"hopper": [1.0, 2]}, "B": {"walker": [1.0, 2]}}
    assert verdict(apart) == "Nothing can be compared: no task has results of all of A and B."
    alone = verdict(table(A=75))
    assert alone.startswith("A on 3 tasks: IQM 75.0 [")
    assert alone.endswith("], 5 seeds.")
    assert verdict({"A": {"hopper": [75.0]}}) == "A on hopper: IQM 75.0, 1 seed."


def test_only_tasks_of_all_methods_are_compared_and_methods_without_seeds_hold_up_nobody() -> None:
    scores = table(A=75, B=60)
    scores["B"]["walker"] = np.array([])
    scores["C"] = {task: np.array([]) for task in TASKS}
    assert verdict(scores).startswith("A is better than B on 2 tasks")
    a, b, c = summary(scores, target=100)
    assert (a.method, a.seeds, a.lacking) == ("A", (5, 5), ())
    assert (b.seeds, b.lacking) == ((5, 5), ("walker",))
    assert (c.seeds, c.lacking, dict(c.estimates)) == ((0, 0), TASKS, {})
    assert list(a.estimates) == ["IQM", "mean", "median", "optimality gap"]
    compared = [scores["A"][task] for task in ("hopper", "cheetah")]
    assert a.estimates["IQM"] == interval(iqm, compared)
    assert a.estimates["optimality gap"].value == pytest.approx(25)
    assert list(summary(scores)[0].estimates) == ["IQM", "mean", "median"]


def test_seeds_that_are_unequal_are_told_and_failed_runs_are_not_swallowed() -> None:
    scores = table(A=75, B=60)
    scores["A"]["hopper"] = scores["A"]["hopper"][:3]
    assert verdict(scores).endswith(", 3 to 5 seeds, of which the first 3 decide.")
    scores["A"]["hopper"][0] = math.nan
    with pytest.raises(UnderstudyError, match="'A' on 'hopper': must be finite"):
        verdict(scores)


def test_more_seeds_are_more_than_those_that_decide() -> None:
    """A and B have 21 seeds, of which three are looked at, for C has no more."""
    seeds = {name: {"t": np.tile(SEEDS[1:4], 7) + mean} for name, mean in (("A", 2.5), ("B", 2), ("C", 1.5))}
    seeds["C"]["t"] = seeds["C"]["t"][:3]
    cut = {name: {"t": row["t"][:3]} for name, row in seeds.items()}
    told, of_three = verdict(seeds), verdict(cut)
    assert told.startswith("Cannot tell A from B or C on t with 3 to 21 seeds, of which the first 3 decide (IQM A ")
    assert told.partition(")")[2] == of_three.partition(")")[2] == "; about 28 more seeds would."


def test_seeds_that_wait_for_the_next_look_decide_nothing() -> None:
    seeds = {name: {"t": np.append(SEEDS, 9 * SEEDS[:2]) + mean} for name, mean in (("A", 9), ("B", 8))}
    told = verdict(seeds, decisions=decide(seeds, Design(group=5)))
    assert told.startswith("Cannot tell A from B on t with 7 seeds, of which the first 5 decide (IQM A ")
    assert ", of which" not in verdict(seeds, decisions=decide(seeds, Design(group=9))), "there was no look yet"


def test_a_lead_that_is_in_the_mean_alone_is_said_to_be() -> None:
    """Six lucky seeds of twenty: the mean is three times as high, and two of three seeds of A are worse than any."""
    lucky = np.append(np.linspace(54, 56, 14), np.linspace(499, 501, 6))
    even = np.linspace(59, 61, 20)
    told = verdict({"A": {"t": lucky}, "B": {"t": even}})
    assert told.startswith("A is better than B on t on average alone: mean 188.5 [")
    assert "] against 60.0 [" in told
    assert ", IQM 99.7 [" in told
    assert ", P(improvement) 0.30 [" in told
    turned = verdict({"A": {"t": -lucky}, "B": {"t": -even}, "C": {"t": even}}, lowest_is_best=True)
    assert turned.startswith("A is better than B and C on t on average alone: mean -188.5 [")
    assert "against -60.0 [-60.3, -59.7] of B" in turned


def test_nobody_leads_whom_another_beat() -> None:
    """B varies, and is told from A alone, whose IQM is higher."""
    scores = {name: {"t": SEEDS + mean} for name, mean in (("A", 9), ("B", 8), ("C", 1), ("D", 0))}
    known = {("B", "A"): "better", ("A", "C"): "better", ("A", "D"): "better"}
    pairs = tuple(
        Decision(a, b, known.get((a, b), "undecided"), int((a, b) in known), 1.0, 5)
        for a, b in (("B", "A"), ("A", "C"), ("A", "D"), ("B", "C"), ("B", "D"), ("C", "D"))
    )
    told = verdict(scores, decisions=Decisions(pairs, {}))
    assert told.startswith("Cannot tell B from C or D on t with 5 seeds (IQM B 8.00 [")
    assert told.endswith("; B is better than A.")


def test_tasks_on_different_scales_are_compared_in_their_own_deviations() -> None:
    rng = np.random.default_rng(0)
    scores = {
        name: {"steps": 1000 * rng.normal(size=9), "share": rng.normal(mean, 0.1, 9)}
        for name, mean in (("A", 0.0), ("B", 3.0))
    }
    assert verdict(scores).startswith("Cannot tell")
    told = verdict(scores, one_scale=False)
    assert told.startswith("B is better than A on 2 tasks (each in standard deviations of its scores): IQM ")
    assert max(float(word) for word in re.findall(r"-?\d+\.\d+", told)) < 2
    alone = {name: {"share": row["share"]} for name, row in scores.items()}
    assert verdict(alone, one_scale=False) == verdict(alone)


def test_scores_that_are_no_seeds_are_told() -> None:
    for wrong, sentence in ((5.0, r"'A' on 't': wrong shape: got \[\]"), (np.ones((3, 4)), "one number per seed")):
        for asked in (verdict, summary):
            with pytest.raises(UnderstudyError, match=sentence):
                asked({"A": {"t": wrong}, "B": {"t": [1.0, 2.0]}})


def test_small_numbers_keep_their_digits() -> None:
    scores = {"A": {"t": SEEDS / 1000 + 0.05}, "B": {"t": SEEDS / 1000 + 0.02}}
    assert us.statistics.verdict(scores, lowest_is_best=True).startswith("B is better than A on t: IQM 0.02 [0.01")


def test_numbers_that_nobody_reads_are_short() -> None:
    assert us.statistics.verdict({"A": {"t": [3e20, 3e20]}}) == "A on t: IQM 3e+20 [3e+20, 3e+20], 2 seeds."
