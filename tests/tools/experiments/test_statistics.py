"""Estimates and intervals: closed forms, brute force, and the numbers of rliable."""

import importlib
import importlib.util
import math
import subprocess
import sys
import types
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from understudy.core.errors import UnderstudyError
from understudy.tools.experiments.statistics import (
    Estimate,
    Tasks,
    align,
    average_score_profile,
    band,
    difference,
    interval,
    iqm,
    mean,
    median,
    optimality_gap,
    paired_interval,
    performance_profile,
    probability_of_improvement,
    profile_band,
    selection_bias,
)

Array = NDArray[np.float64]
ALL = [mean, median, iqm, optimality_gap]
number = st.integers(-200, 200).map(float)
task = st.lists(number, min_size=1, max_size=6).map(np.array)
tasks_of = st.lists(task, min_size=1, max_size=4)


def random_tasks(seed: int, sizes: list[int]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(50, 20, size) for size in sizes]


@pytest.fixture
def rliable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real package. Of `arch`, whose time series do not import beside pandas 3, it gets the bootstrap alone."""
    found = importlib.util.find_spec("arch")
    assert found is not None
    bare = types.ModuleType("arch")
    bare.__path__ = list(found.submodule_search_locations or [])
    monkeypatch.setitem(sys.modules, "arch", bare)
    library, metrics = (importlib.import_module(f"rliable.{name}") for name in ("library", "metrics"))

    return types.SimpleNamespace(library=library, metrics=metrics)


def test_by_hand() -> None:
    tasks = [np.array([0.0, 10, 20, 30]), np.array([100.0, 100, 100, 140])]
    assert mean(tasks) == (15 + 110) / 2
    assert median([*tasks, np.array([-7.0])]) == 15
    assert iqm(tasks) == (20 + 30 + 100 + 100) / 4
    assert optimality_gap(tasks) == 100 - (15 + 100) / 2
    assert optimality_gap(tasks, 140) == 140 - 62.5
    assert probability_of_improvement(tasks, [np.array([10.0]), np.array([100.0, 150])]) == (5 / 8 + (5 / 8) / 2) / 2
    assert performance_profile(tasks, [-1, 10, 100, 200]).tolist() == [1, (0.5 + 1) / 2, 0.125, 0]
    assert average_score_profile(tasks, [-1, 15, 100, 200]).tolist() == [1, 0.5, 0.5, 0]


def test_estimates_are_those_of_rliable_to_the_bit(rliable: Any) -> None:
    rng = np.random.default_rng(0)
    metrics, library = rliable.metrics, rliable.library
    for seeds, count in product((1, 2, 3, 5, 9, 10), (1, 2, 3, 7, 20)):
        ours, theirs = rng.normal(60, 25, (seeds, count)), rng.normal(50, 25, (seeds + 2, count))
        ours[:, ::2] = ours[:, ::2].round(-1)  # with ties
        a, b = list(ours.T.copy()), list(theirs.round(-1).T.copy())
        assert mean(a) == metrics.aggregate_mean(ours)
        assert median(a) == metrics.aggregate_median(ours)
        assert iqm(a) == metrics.aggregate_iqm(ours)
        assert optimality_gap(a) == metrics.aggregate_optimality_gap(ours, 100.0)
        assert probability_of_improvement(a, b) == metrics.probability_of_improvement(ours, theirs.round(-1))
        assert probability_of_improvement(a, a) == metrics.probability_of_improvement(ours, ours) == 0.5
        thresholds = np.linspace(-20, 140, 33)
        profile = library.score_distributions(ours, thresholds)
        assert performance_profile(a, thresholds) == pytest.approx(profile, abs=1e-15)
        profile = library.average_score_distributions(ours, thresholds)
        assert average_score_profile(a, thresholds) == pytest.approx(profile, abs=1e-15)


def limits_of_many(found: Callable[[int], Estimate]) -> tuple[Array, Array]:
    """Lower and upper limit on average over seeds of the bootstrap, and how much they vary."""
    limits = np.array([(one.low, one.high) for one in map(found, range(8))])
    return limits.mean(0), limits.std(0, ddof=1)


def drawn_by(rliable: Any, scores: Any, function: Any, reps: int) -> Array:
    """Limits of rliable, with a `random_state` that its bootstrap takes and does not use."""
    state = np.random.RandomState(0)
    found = rliable.library.get_interval_estimates({"A": scores}, function, reps=reps, random_state=state)[1]
    return np.asarray(found["A"][:, 0])


@pytest.mark.filterwarnings("ignore:random_state is deprecated")
@pytest.mark.parametrize(
    ("name", "statistic"),
    [
        ("aggregate_iqm", iqm),
        pytest.param("aggregate_mean", mean, marks=pytest.mark.slow),
        pytest.param("aggregate_median", median, marks=pytest.mark.slow),
    ],
)
def test_intervals_are_those_of_rliable_within_the_error_of_drawing(
    rliable: Any, name: str, statistic: Callable[[Tasks], float]
) -> None:
    """It draws from the global generator of NumPy, which alone makes it draw the same again."""
    scores, function = np.random.default_rng(1).normal(60, 25, (5, 4)), vars(rliable.metrics)[name]

    def drawn(reps: int) -> Array:
        return drawn_by(rliable, scores, lambda x: np.array([function(x)]), reps)

    np.random.seed(0)
    known, again = drawn(1000), drawn(50)
    limits, error = limits_of_many(lambda seed: interval(statistic, list(scores.T), draws=1000, seed=seed))
    assert (np.abs(limits - known) < 4.5 * error).all()
    np.random.seed(1)
    another = drawn(50)
    np.random.seed(1)
    assert np.array_equal(drawn(50), another)
    assert not np.array_equal(again, another)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:random_state is deprecated")
def test_intervals_of_improvement_are_those_of_rliable_within_the_error_of_drawing(rliable: Any) -> None:
    rng, metrics = np.random.default_rng(1), rliable.metrics
    ours, theirs = rng.normal(60, 25, (5, 4)), rng.normal(50, 25, (7, 4))
    np.random.seed(0)
    known = drawn_by(rliable, [ours, theirs], lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), 2000)
    limits, error = limits_of_many(
        lambda seed: paired_interval(probability_of_improvement, list(ours.T), list(theirs.T), seed=seed)
    )
    assert (np.abs(limits - known) <= 4.5 * error + 1 / 140).all()  # it comes in steps of 1/(4·5·7)


@given(tasks=tasks_of, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_seeds_have_no_order_and_scores_no_unit(tasks: list[Array], seed: int) -> None:
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(scores) for scores in tasks]
    for statistic in ALL:
        assert statistic(shuffled) == pytest.approx(statistic(tasks), abs=1e-9)
    for statistic in (mean, median, iqm):
        assert statistic([3 * scores - 7 for scores in tasks]) == pytest.approx(3 * statistic(tasks) - 7, abs=1e-9)
        assert statistic([-scores for scores in tasks]) == pytest.approx(-statistic(tasks), abs=1e-9)
        assert min(map(np.min, tasks)) - 1e-9 <= statistic(tasks) <= max(map(np.max, tasks)) + 1e-9
    reached = mean([np.minimum(scores, 100) for scores in tasks])
    assert optimality_gap(tasks) + reached == pytest.approx(100)


@given(tasks=tasks_of, data=st.data())
@settings(max_examples=60, deadline=None)
def test_one_of_two_is_better_and_pairs_are_counted(tasks: list[Array], data: st.DataObject) -> None:
    others = [data.draw(task) for _ in tasks]
    chance = probability_of_improvement(tasks, others)
    assert chance + probability_of_improvement(others, tasks) == pytest.approx(1)
    counted = [
        np.mean([float(x > y) + 0.5 * float(x == y) for x, y in product(a, b)])
        for a, b in zip(tasks, others, strict=True)
    ]
    assert chance == pytest.approx(float(np.mean(counted)))


@given(tasks=tasks_of)
@settings(max_examples=60, deadline=None)
def test_tasks_weigh_alike_however_many_seeds_they_have(tasks: list[Array]) -> None:
    """As if every seed were there so often that all tasks had equally many."""
    together = math.lcm(*map(len, tasks))
    alike = [np.repeat(scores, together // len(scores)) for scores in tasks]
    ordered = sorted(np.concatenate(alike).tolist())
    cut = len(ordered) // 4
    assert iqm(tasks) == pytest.approx(float(np.mean(ordered[cut : len(ordered) - cut])), abs=1e-9)
    for statistic in ALL:
        assert statistic(tasks) == pytest.approx(statistic(alike), abs=1e-9)
    assert performance_profile(tasks, [0]) == pytest.approx(performance_profile(alike, [0]))


def test_tasks_weigh_alike_when_no_integer_counts_their_seeds() -> None:
    """Of thirteen primes the least common multiple has 23 digits."""
    sizes = [97, 89, 83, 79, 73, 71, 67, 61, 59, 53, 47, 43, 41]
    for count in range(4, len(sizes) + 1):
        low, high, *rest = [np.linspace(0, 100, size) for size in sizes[:count]]
        assert iqm([low - 1000, high + 1000, *rest]) == pytest.approx(50)


def test_an_interval_is_that_of_all_samples_there_are() -> None:
    """Two tasks of three seeds: 27·27 samples, whose percentiles are known."""
    tasks = random_tasks(2, [3, 3])
    every = [mean([np.array(a), np.array(b)]) for a in product(tasks[0], repeat=3) for b in product(tasks[1], repeat=3)]
    low, high = np.quantile(every, [0.025, 0.975])
    found = interval(mean, tasks, draws=40_000)
    assert found.value == mean(tasks)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02 * (high - low))
    narrow = interval(mean, tasks, confidence=0.5)
    assert found.low < narrow.low < narrow.high < found.high
    more = random_tasks(2, [9, 8])
    assert interval(mean, more, seed=1) == interval(mean, more, seed=1) != interval(mean, more, seed=2)


def test_seeds_of_two_methods_are_drawn_independently() -> None:
    """Against a copy of itself a method may differ: by √2 of what it varies by."""
    tasks = random_tasks(7, [40, 40])
    alone, apart = interval(mean, tasks), paired_interval(difference(mean), tasks, tasks)
    assert apart.value == 0
    assert apart.high - apart.low == pytest.approx(math.sqrt(2) * (alone.high - alone.low), rel=0.1)


def test_any_statistic_has_an_interval_and_those_of_here_the_same_ones_faster() -> None:
    for tasks in (random_tasks(3, [4, 4, 4]), random_tasks(3, [2, 5, 3])):
        statistics: list[Callable[[Tasks], float]] = [*ALL, partial(optimality_gap, target=60.0)]
        for statistic in statistics:

            def called(given: Tasks, statistic: Callable[[Tasks], float] = statistic) -> float:
                return statistic(given)

            fast, slow = interval(statistic, tasks, draws=50), interval(called, tasks, draws=50)
            assert (fast.value, fast.low, fast.high) == pytest.approx((slow.value, slow.low, slow.high))
        others = random_tasks(4, [3] * len(tasks))
        for compared in (probability_of_improvement, difference(iqm)):

            def called_with(a: Tasks, b: Tasks, compared: Callable[[Tasks, Tasks], float] = compared) -> float:
                return compared(a, b)

            fast = paired_interval(compared, tasks, others, draws=50)
            slow = paired_interval(called_with, tasks, others, draws=50)
            assert (fast.value, fast.low, fast.high) == pytest.approx((slow.value, slow.low, slow.high))
    assert difference(mean)([np.array([3.0])], [np.array([1.0])]) == 2


def test_one_seed_knows_nothing_of_others() -> None:
    one, two = [np.array([5.0])], [np.array([5.0, 6.0])]
    for known in (interval(iqm, one), interval(iqm, [*two, *one]), paired_interval(difference(mean), one, two)):
        assert not math.isnan(known.value)
        assert math.isnan(known.low)
        assert math.isnan(known.high)
    assert np.isnan(profile_band(one, [1.0]).low).all()
    assert interval(iqm, two).low == 5


def test_intervals_hold_the_truth_nearly_as_often_as_they_say() -> None:
    """95 % with many seeds; less with few, as the page says."""
    rng, held = np.random.default_rng(0), {5: 0, 40: 0}
    for seeds in held:
        for _ in range(200):
            found = interval(mean, [rng.normal(10, 3, seeds), rng.normal(30, 3, seeds)], draws=300)
            held[seeds] += found.low <= 20 <= found.high
    assert held[40] / 200 > 0.9
    assert 0.78 < held[5] / 200 < 0.95


def test_the_band_of_a_profile_is_that_of_each_threshold() -> None:
    tasks = random_tasks(5, [4, 6])
    thresholds = [30.0, 50.0, 60.0]
    found = profile_band(tasks, thresholds, draws=20_000)
    assert found.middle.tolist() == performance_profile(tasks, thresholds).tolist()
    for place, threshold in enumerate(thresholds):
        one = interval(lambda given, t=threshold: performance_profile(given, [t])[0], tasks, draws=4000)  # type: ignore[misc]
        assert (found.low[place], found.high[place]) == pytest.approx((one.low, one.high), abs=0.13)


def test_a_band_is_the_interval_at_each_point_with_whole_seeds_drawn() -> None:
    curves = np.random.default_rng(6).normal(size=(14, 9)).cumsum(1)
    for name, statistic in (("mean", mean), ("iqm", iqm)):
        found = band(curves, middle=name, draws=8000)
        for point in (0, 4, 8):
            one = interval(statistic, [curves[:, point]], draws=8000)
            assert found.middle[point] == pytest.approx(one.value)
            spread = one.high - one.low
            assert (found.low[point], found.high[point]) == pytest.approx((one.low, one.high), abs=0.06 * spread)
    alike = band(np.array([[1.0, 1], [2, 2], [4, 4]]))
    assert alike.low[0] == alike.low[1]


def test_evaluations_that_are_missing_are_left_to_the_other_seeds() -> None:
    nan = math.nan
    curves = np.array([[1.0, 2, nan, nan], [3.0, nan, 5, nan], [5.0, 4, nan, nan], [7.0, 6, nan, nan]])
    for middle in ("mean", "iqm"):
        found = band(curves, middle=middle)
        assert found.middle[:3].tolist() == [4, 4, 5]
        assert np.isnan(found.middle[3])
        assert np.isnan(found.low).tolist() == np.isnan(found.high).tolist() == [False, False, True, True]
        assert 2 <= found.low[1] < 4 < found.high[1] <= 6
    assert np.isnan(band([[1.0, 2.0]]).low).all()


def test_curves_are_put_on_one_axis_without_inventing_anything() -> None:
    axis, rows = align([([10, 20], [1.0, 2.0]), ([20, 30], [5.0, 6.0]), ([], [])])
    assert axis.tolist() == [10, 20, 30]
    assert np.nan_to_num(rows, nan=-1).tolist() == [[1, 2, -1], [-1, 5, 6], [-1, -1, -1]]
    assert align([])[1].shape == (0, 0)


def test_the_best_of_many_equal_evaluations_flatters() -> None:
    known = {1: 0.0, 2: 1 / math.pi**0.5, 3: 1.5 / math.pi**0.5}
    for evaluations, bias in known.items():
        assert selection_bias(evaluations) == pytest.approx(bias, abs=1e-6)
    drawn = np.random.default_rng(0).normal(size=(20_000, 50)).max(1)
    assert selection_bias(50) == pytest.approx(float(drawn.mean()), abs=0.02)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mean([]), "no task"),
        (lambda: mean([np.array([])]), r"scores of task 1: wrong shape: got \[0\]"),
        (lambda: iqm([np.ones(2), np.ones((2, 2))]), "scores of task 2"),
        (lambda: iqm([np.array([1.0, math.nan])]), "finite numbers: got nan.* leave this seed out"),
        (lambda: iqm([np.array([1.0, 1e300])]), "got 1e.300, expected at most 1e.100"),
        (lambda: mean([["a", "b"]]), "scores of task 1: not numbers"),  # type: ignore[list-item]
        (lambda: mean([np.ones((2, 9))]), "Of episodes give their mean"),
        (lambda: iqm([np.array([1.0, -math.inf])]), "got -inf"),
        (lambda: probability_of_improvement([np.ones(1)], [np.ones(1), np.ones(1)]), "got 1 and 2 tasks"),
        (lambda: interval(mean, [np.ones(2)], draws=0), "draws: too small: got 0"),
        (lambda: interval(mean, [np.ones(2)], seed=-1), "seed: too small: got -1"),
        (lambda: performance_profile([np.ones(2)], [[1, 2], [3, 4]]), "thresholds: not numbers in a row"),
        (lambda: performance_profile([np.ones(2)], [math.nan]), "thresholds: not numbers in a row"),
        (lambda: align([([1, 2], [1.0])]), r"curve 1: .* got \[2\] and \[1\]"),
        (lambda: interval(mean, [np.ones(2)], confidence=95), "confidence: wrong value: got 95"),
        (lambda: band(np.ones(3)), r"curves: wrong shape: got \[3\]"),
        (lambda: band(np.ones((0, 3))), "at least one seed"),
        (lambda: band([[1.0, math.inf]]), "infinite"),
        (lambda: band([[1.0]], middle="mode"), "got mode, expected mean or iqm"),
        (lambda: selection_bias(0), "expected 1 or more"),
    ],
)
def test_scores_that_are_none_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UnderstudyError, match=sentence):
        call()


def test_statistics_need_no_torch() -> None:
    code = "import sys, understudy as us; us.statistics.iqm; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
