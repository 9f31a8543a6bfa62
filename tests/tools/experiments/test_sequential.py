"""Looking after every few seeds: the error rate of the whole study holds, and clear differences take few seeds."""

import math
import tracemalloc
from collections.abc import Callable
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.core.errors import UnderstudyError
from understudy.tools.experiments.sequential import (
    ALIKE,
    BETTER,
    UNDECIDED,
    WORSE,
    Decisions,
    Design,
    decide,
    first_crossing,
    largest_differences,
)

Array = NDArray[np.float64]
Drawn = Callable[[np.random.Generator, tuple[int, ...]], Array]


def named(scores: Array) -> dict[str, dict[str, Array]]:
    """[methods, tasks, seeds] with letters for methods."""
    letters = "ABCDEFGHIJKL"
    return {letters[i]: {f"task {t}": row for t, row in enumerate(rows)} for i, rows in enumerate(scores)}


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.exp(1.5 * rng.normal(size=shape))


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Learned or not, as seeds on antmaze do; many scores tie."""
    return np.round(np.where(rng.random(shape) < 0.3, 0.0, 90.0) + rng.integers(0, 3, shape))


def errors(equal: list[int], draw: Drawn, *, studies: int, design: Design, tasks: int = 1) -> float:
    """How many studies tell apart two methods of one class; `equal` says to which class each method belongs."""
    rng, wrong = np.random.default_rng(studies), 0
    same = [("ABCDEFGH"[i], "ABCDEFGH"[j]) for i, j in combinations(range(len(equal)), 2) if equal[i] == equal[j]]
    for _ in range(studies):
        scores = draw(rng, (len(equal), tasks, design.group * design.looks))
        scores = scores + 3.0 * scores.std() * np.array(equal)[:, None, None]
        decisions = decide(named(scores), design)
        wrong += int(any(decisions.of(*pair).look for pair in same))
    return wrong / studies


def most(alpha: float, studies: int) -> float:
    """What an error rate of α gives in so many studies, but for one time in a thousand."""
    return alpha + 3.1 * math.sqrt(alpha * (1 - alpha) / studies)


PATTERNS = [[0, 0], [0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]


@pytest.mark.parametrize("draw", [normal, skewed, bimodal])
def test_the_error_rate_of_ties_holds(draw: Drawn) -> None:
    design = Design(draws=200, looks=3, group=3)
    assert errors([0, 0, 1, 1], draw, studies=60, design=design) <= most(0.05, 60)


@pytest.mark.slow
@pytest.mark.parametrize("equal", PATTERNS, ids=str)
@pytest.mark.parametrize("draw", [normal, skewed, bimodal])
def test_the_error_rate_of_ten_thousand_ties_holds(draw: Drawn, equal: list[int]) -> None:
    rate = errors(equal, draw, studies=10_000, design=Design(group=3, looks=4, draws=500))
    print(f"{draw.__name__} {equal}: {rate:.4f}")
    assert rate <= most(0.05, 10_000)


def test_no_way_to_deal_the_same_seeds_errs_more_often_than_alpha() -> None:
    """Exact, not simulated: every order in which the seeds of a tie could have come is a study."""
    rng = np.random.default_rng(0)
    design = Design(group=2, looks=2, alpha=0.3)  # 6·6 ways
    for first, second in (rng.normal(size=(2, 4)), np.array([[1.0, 1, 2, 3], [0, 0, 0, 5]])):
        found = [
            decide(named(np.array([[a[:2] + b[:2]], [a[2:] + b[2:]]])), design).pairs[0].look
            for a in permutations(first.tolist())
            for b in permutations(second.tolist())
        ]
        assert np.mean(np.array(found) == 1) <= 0.15
        assert np.mean(np.array(found) > 0) <= 0.3
    for seeds in (rng.normal(size=6), np.array([0.0, 0, 1, 1, 2, 9])):  # three methods, 90 ways
        dealt = [np.reshape(order, (3, 1, 2)) for order in permutations(seeds.tolist())]
        wrong = [any(pair.look for pair in decide(named(one), Design(2, 1, 0.4)).pairs) for one in dealt[::4]]
        assert 0 < np.mean(wrong) <= 0.4 or len(set(seeds)) < 6


def brute_first_crossing(a: list[Array], b: list[Array], level: float) -> int:
    """From the definition: all ways to say which two of each group's four were A's."""
    ways = list(product(combinations(range(4), 2), repeat=2))

    def largest(way: tuple[tuple[int, ...], ...], look: int) -> float:
        gap = 0.0
        for t in range(look):
            together = [*a[t], *b[t]]
            mine = sum(together[i] for i in way[t])
            gap += mine - (sum(together) - mine)
        return round(abs(gap) / (2 * look), 12)

    gone: set[object] = set()
    for look in (1, 2):
        left = [way for way in ways if way not in gone]
        candidates = sorted({largest(way, look) for way in left} | {-1.0})
        budget = level * look / 2 * len(ways) + 1e-9
        bound = next(b for b in candidates if len(gone) + sum(largest(way, look) > b for way in left) <= budget)
        gone |= {way for way in left if largest(way, look) > bound}
        if ((0, 1), (0, 1)) in gone:
            return look
    return 0


def test_crossings_are_those_of_the_definition() -> None:
    rng, seen = np.random.default_rng(3), set()
    for trial in range(20):
        scores = rng.normal(size=(2, 4)) + np.array([[0], [trial % 4]])
        scores = scores.round() if trial % 3 == 0 else scores
        groups = scores.reshape(2, 2, 2).transpose(1, 0, 2)  # look, method, seeds
        for level in (0.1, 0.25, 0.4, 0.7):
            design = Design(2, 2, level)
            largest = largest_differences(groups.reshape(2, 1, 4), 2, [(0, 1)], design)
            assert len(largest) == 36
            expected = brute_first_crossing(list(groups[:, 0]), list(groups[:, 1]), level)
            assert first_crossing(largest, level, 2) == expected
            assert decide(named(scores[:, None]), design).pairs[0].look == expected
            seen.add(expected)
    assert seen == {0, 1, 2}


def test_scores_that_tie_in_decimals_tie() -> None:
    """0.1 + 0.2 is not 0.3 here, and must not be called more extreme."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        whole = rng.integers(0, 9, (2, 1, 3)).astype(float)
        for alpha in (0.1, 0.2, 0.3):
            design = Design(3, 1, alpha)
            assert decide(named(whole * 0.1), design).pairs[0].look == decide(named(whole), design).pairs[0].look


def test_pairs_that_may_both_be_ties_share_the_error_rate() -> None:
    """A and B are as far apart as three seeds can be, one in ten; so may be C and D, far away from both."""
    low, high = np.array([0.0, 1, 2]), np.array([3.0, 4, 5])
    assert decide(named(np.array([[low], [high]])), Design(3, 1, 0.1)).settled
    for far, alpha, look in (([900.0, 901, 902], 0.1, 0), ([900.0, 901, 902], 0.2, 1)):
        four = named(np.array([[low], [high], [far], [far]]))
        assert decide(four, Design(3, 1, alpha)).of("A", "B").look == look
        nine = {**four, **named(np.tile(np.array([[far]]), (9, 1, 1)))} | {name: four[name] for name in "AB"}
        two = decide(nine, Design(3, 1, alpha), pairs=[("A", "B"), ("C", "D")])
        assert two.of("A", "B").look == look, "of so many methods each pair has its share"


def test_drawn_dealings_give_what_all_of_them_give() -> None:
    groups = np.random.default_rng(5).normal(size=(1, 2, 6))  # 20² ways
    every = largest_differences(groups, 2, [(0, 1)], Design(3, 1, draws=400))
    drawn = largest_differences(groups, 2, [(0, 1)], Design(3, 1, draws=399))
    assert (len(every), len(drawn)) == (400, 399)
    assert every[0, 0] == pytest.approx(drawn[0, 0])
    many = largest_differences(np.tile(groups, 1), 2, [(0, 1)], Design(3, 1, draws=399, seed=1))
    for share in (0.5, 0.9):
        known = np.quantile(every, share)
        assert np.mean(drawn >= known - 1e-12) == pytest.approx(1 - share, abs=0.08)
        assert np.mean(many >= known - 1e-12) == pytest.approx(1 - share, abs=0.08)


def test_a_clear_difference_takes_one_group_of_seeds() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 5, (3, 1, 5)) + np.array([30, 60, 90])[:, None, None]
    decisions = decide(named(scores))
    assert [(pair.verdict, pair.look, pair.seeds) for pair in decisions.pairs] == [(WORSE, 1, 5)] * 3
    assert decisions.settled
    assert decisions.of("C", "A").verdict == BETTER
    assert decisions.of("C", "A").difference == pytest.approx(float(scores[2].mean() - scores[0].mean()))
    turned = decide(named(scores), lowest_is_best=True)
    assert {pair.verdict for pair in turned.pairs} == {BETTER}
    on_three_tasks = rng.normal(0, 5, (2, 3, 3)) + np.array([30, 60])[:, None, None]
    assert decide(named(on_three_tasks), Design(group=3)).pairs[0].look == 1


def test_three_seeds_on_one_task_are_too_few_for_the_first_look_and_their_budget_is_kept() -> None:
    """20 ways to deal: one in ten is as extreme as the most extreme; the first look may err one time in a hundred."""
    scores = np.random.default_rng(1).normal(0, 1, (2, 1, 15)) + np.array([0, 50])[:, None, None]
    looks = [decide(named(scores[..., :seeds]), Design(group=3)).pairs[0].look for seeds in (3, 6, 15)]
    assert looks == [0, 2, 2]


def test_what_cannot_be_told_apart_ends_as_such() -> None:
    scores = np.tile(np.array([1.0, 2, 3, 4, 5, 5, 4, 3, 2, 1]), (2, 1, 1))
    design = Design(group=5, looks=2)
    half = decide(named(scores[..., :9]), design)
    assert (half.pairs[0].verdict, half.pairs[0].seeds, half.wanted) == (UNDECIDED, 5, {"A": 10, "B": 10})
    end = decide(named(scores), design)
    assert (end.pairs[0].verdict, end.settled, end.pairs[0].difference) == (ALIKE, True, 0.0)


def test_only_methods_that_are_undecided_want_more_seeds() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 1, (3, 1, 5)) + np.array([0, 0.2, 40])[:, None, None]
    decisions = decide(named(scores))
    assert decisions.wanted == {"A": 10, "B": 10}
    assert decisions.of("A", "B").verdict == UNDECIDED
    more = {name: {"task 0": np.append(row["task 0"], rng.normal(size=5))} for name, row in named(scores).items()}
    more["C"] = named(scores)["C"]  # stopped: the others go on without it
    after = decide(more)
    assert [after.of(*pair).look for pair in ("AC", "BC")] == [1, 1]
    assert after.of("A", "B").seeds == 10
    nothing = decide({"A": {"t": []}, "B": {"t": [1.0, 2.0]}})
    assert nothing.wanted == {"A": 5, "B": 5}
    assert decide({"A": {"t": range(10)}, "B": {"t": range(5)}}, Design(looks=2)).wanted == {"A": 10, "B": 10}
    assert np.isnan(nothing.pairs[0].difference)


def test_a_pair_that_is_behind_is_decided_when_it_has_come_as_far_as_what_decides_it() -> None:
    """C and D differ at their second look: with them all that keeps A and B together but their own difference."""
    rng, waiting = np.random.default_rng(0), 0
    for _ in range(40):
        whole = named(rng.normal(size=(4, 1, 9)) + np.array([0, 3, 10, 12])[:, None, None])
        design = Design(3, 3, 0.3)
        behind = {name: {"task 0": row["task 0"][: 3 if name in "AB" else 9]} for name, row in whole.items()}
        early, late = decide(behind, design).of("A", "B"), decide(whole, design).of("A", "B")
        assert early.seeds == 3
        assert early.look in (0, late.look)
        assert early == late or early.verdict == UNDECIDED
        waiting += late.look > 1
    assert waiting > 20


def test_many_methods_are_compared_in_the_memory_of_a_few() -> None:
    scores = named(np.random.default_rng(0).normal(size=(12, 1, 9)))
    pairs = list(combinations(scores, 2))
    peaks = []
    for compared in (pairs[:6], pairs):  # with as many ways to deal
        design = Design(3, 3, 0.05 * len(compared) / len(pairs))
        decide(scores, design, pairs=compared)
        tracemalloc.start()
        decide(scores, design, pairs=compared)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_decisions_are_kept_when_seeds_are_added_and_the_same_seeds_decide_the_same() -> None:
    rng = np.random.default_rng(4)
    for _ in range(6):
        scores = rng.normal(0, 1, (4, 2, 12)) + rng.normal(0, 0.8, (4, 1, 1))
        design = Design(group=3, looks=4, draws=400)
        history: list[Decisions] = [decide(named(scores[..., :seeds]), design) for seeds in (3, 6, 9, 12)]
        assert history[-1] == decide(named(scores), design)
        for before, after in pairwise(history):
            for pair in before.pairs:
                if pair.look:
                    assert after.of(pair.a, pair.b) == pair
        shifted = decide(named(scores * 10 + 7), design)
        assert [pair.look for pair in shifted.pairs] == [pair.look for pair in history[-1].pairs]


def test_looking_again_and_again_with_a_test_for_one_look_breaks_its_level() -> None:
    """Ten looks, each at 5 %: about one tie in six is called a difference; with looks that are planned, in twenty."""
    rng = np.random.default_rng(0)
    naive = planned = 0
    for _ in range(120):
        scores = rng.normal(size=(2, 1, 30))
        looks = (decide(named(scores[..., :seeds]), Design(seeds, 1, draws=200)) for seeds in range(3, 31, 3))
        naive += any(decision.pairs[0].look for decision in looks)
        planned += bool(decide(named(scores), Design(3, 10, draws=200)).pairs[0].look)
    assert naive / 120 > most(0.05, 120) >= planned / 120


def test_methods_that_differ_on_each_task_and_not_on_average_are_hardly_told_apart() -> None:
    """Their seeds could not have been dealt otherwise, so that it is no tie of the test, but of what it says."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(100):
        scores = rng.normal(size=(2, 2, 9)) + np.array([[0.0, 3], [3, 0]])[:, :, None]
        wrong += bool(decide(named(scores), Design(3, 3, draws=200)).pairs[0].look)
    assert wrong / 100 <= 0.05


def test_tasks_on_different_scales_can_be_made_to_weigh_alike() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 2, 10)) + np.array([[0.0, 0], [3, 0]])[:, :, None]
    scores[:, 1] *= 1000
    assert decide(named(scores)).pairs[0].verdict == UNDECIDED
    assert decide(named(scores), Design(by_spread=True)).pairs[0].verdict == WORSE
    even = decide(named(scores), Design(alpha=1e-6, by_spread=True)).pairs[0]
    assert (even.verdict, even.seeds) == (UNDECIDED, 10)
    gaps = [(task[0].mean() - task[1].mean()) / task.std() for task in scores.transpose(1, 0, 2)]
    assert even.difference == pytest.approx(np.mean(gaps)), "in deviations of all scores of a task"


def test_a_task_on_which_all_score_the_same_says_nothing_however_it_is_rounded() -> None:
    """The deviation of 0.1 five times is 1e-17, by which nothing may be divided."""
    scores = np.random.default_rng(0).normal(size=(2, 2, 7)) + np.array([0.0, 30])[:, None, None]
    for constant in (0.1, 0.7, 33.3, np.array([0.1 + 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])):
        scores[:, 1] = constant
        scores[1, 1] = np.flip(scores[1, 1])
        alone, both = (decide(named(scores[:, :tasks]), Design(7, 1, by_spread=True)).pairs[0] for tasks in (1, 2))
        assert both.verdict == alone.verdict == WORSE
        assert both.difference == pytest.approx(alone.difference / 2)


def test_a_baseline_is_compared_with_each_and_the_others_not_with_one_another() -> None:
    rng = np.random.default_rng(0)
    scores = named(rng.normal(0, 1, (4, 1, 10)) + np.array([0, 0.1, 5, 9])[:, None, None])
    decisions = decide(scores, pairs=[("A", "B"), ("A", "C"), ("A", "D")])
    assert [pair.verdict for pair in decisions.pairs] == [UNDECIDED, WORSE, WORSE]
    assert decisions.wanted == {"A": 15, "B": 15}
    with pytest.raises(UnderstudyError, match="not compared"):
        decisions.of("C", "D")


def test_more_methods_than_have_partitions_are_compared_pair_by_pair() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 1, (10, 3, 5)) + 10.0 * np.array([0, 0, *range(1, 9)])[:, None, None]
    decisions = decide(named(scores))
    assert decisions.of("A", "B").verdict == UNDECIDED
    assert sum(pair.look == 1 for pair in decisions.pairs) == 44


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: decide({"A": {"t": [1.0]}}), "nothing to compare: got 1 methods"),
        (lambda: decide({"A": {"t": [1.0]}, "B": {"u": [1.0]}}), "the same tasks: got u of 'B', expected t"),
        (lambda: decide({"A": {}, "B": {}}), "got none of 'A'"),
        (lambda: decide({"A": {"t": [1.0]}, "B": {"t": [np.nan]}}), "'B' on 't': must be finite numbers: got nan"),
        (lambda: decide({"A": {"t": [1.0]}, "B": {"t": [[1.0]]}}), r"wrong shape: got \[1, 1\]"),
        (lambda: decide(named(np.zeros((2, 1, 1))), pairs=[("A", "C")]), "no method 'C'"),
        (lambda: decide(named(np.zeros((2, 1, 1))), pairs=[("A", "B"), ("B", "A")]), "named once"),
        (lambda: decide(named(np.zeros((2, 1, 1))), pairs=[("A", "A")]), "each pair is two methods"),
        (lambda: Design(group=0), "design.group: too small: got 0, expected at least 1"),
        (lambda: Design(group=1.5), "design.group: not a whole number"),  # type: ignore[arg-type]
        (lambda: Design(seed=-1), "design.seed: too small: got -1"),
        (lambda: Design(looks=0), "design.looks"),
        (lambda: Design(draws=0), "design.draws"),
        (lambda: Design(alpha=1.0), "design.alpha"),
    ],
)
def test_studies_that_cannot_be_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UnderstudyError, match=sentence):
        call()
