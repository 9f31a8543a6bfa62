"""How many more seeds: right on average, and never a number where nothing is known."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.tools.experiments.forecast import forecast, more_seeds
from understudy.tools.experiments.sequential import Design, decide

Array = NDArray[np.float64]


def named(scores: Array) -> dict[str, dict[str, Array]]:
    return {"ABC"[i]: {f"task {t}": row for t, row in enumerate(rows)} for i, rows in enumerate(scores)}


def test_what_is_forecast_happens_about_as_often() -> None:
    """Differences of every size: of pairs that look undecided, the share that the planned looks decide."""
    rng, design, said, done = np.random.default_rng(0), Design(group=4, looks=4, draws=300), list[float](), list[bool]()
    for _ in range(60):
        scores = rng.normal(size=(2, 1, 16))
        scores[1] += rng.uniform(-4, 4)
        for known in forecast(named(scores[..., :4]), design):
            said.append(known.within)
            done.append(decide(named(scores), design).pairs[0].look > 0)
    assert len(said) > 30
    assert np.mean(said) == pytest.approx(np.mean(done), abs=0.15)
    assert np.corrcoef(said, np.array(done, np.float64))[0, 1] > 0.3


def test_small_differences_take_more_seeds_and_ties_have_no_end() -> None:
    seeds = np.array([-1.5, -0.5, 0, 0.5, 1.5])
    counts = []
    for gap in (0.0, 0.8, 1.6):
        (known,) = forecast(named(np.array([[seeds], [seeds + gap]])))
        assert known.low <= known.seeds <= known.high
        counts.append(known.seeds)
        again = forecast(named(np.array([[seeds], [seeds + gap]])))
        assert again == (known,)
    assert counts[0] > counts[1] > counts[2] == 5
    on_four_tasks = forecast(named(np.array([[seeds] * 4, [seeds + 0.8] * 4])))
    assert on_four_tasks == () or on_four_tasks[0].seeds < counts[1]


def test_a_few_seeds_know_neither_that_a_tie_is_one_nor_what_many_pairs_leave_to_each() -> None:
    seeds = np.array([-1.5, -0.5, 0, 0.5, 1.5])
    (tie,) = forecast(named(np.array([[seeds], [seeds]])))
    assert 0.15 < tie.within < 0.6, "more than the error that a known tie would leave"
    (alone,) = forecast(named(np.array([[seeds], [seeds + 0.8]])))
    beside, *others = forecast(named(np.array([[seeds], [seeds + 0.8], [seeds + 0.4]])))
    assert len(others) == 2
    assert beside.within < alone.within - 0.05


def test_seeds_beyond_whole_groups_shorten_what_is_left() -> None:
    seeds = np.array([-1.5, -0.5, 0, 0.5, 1.5, -1, 1, -0.3, 0.3])
    scores = np.array([[seeds], [seeds + 1.3]])
    counts = [forecast(named(scores[..., :seeds]))[0] for seeds in (5, 9)]
    assert counts[1].low == 1
    assert counts[0].low == 5


def test_undecided_pairs_alone_are_forecast_and_one_seed_tells_nothing() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 1, 5))
    scores[2] += 50
    assert [(known.a, known.b) for known in forecast(named(scores))] == [("A", "B")]
    alone = forecast(named(scores[:2, :, :1]))[0]
    assert all(math.isnan(value) for value in (alone.seeds, alone.low, alone.high, alone.within))
    assert forecast(named(scores), pairs=[("A", "C")]) == ()


def test_scales_of_tasks_are_evened_out_where_that_is_asked() -> None:
    seeds = np.array([-1.5, -0.5, 0, 0.5, 1.5])
    scores = named(np.array([[seeds, 1000 * seeds], [seeds + 1.4, 1000 * seeds[::-1]]]))
    raw, even = (forecast(scores, Design(by_spread=by_spread)) for by_spread in (False, True))
    assert not even or even[0].seeds < raw[0].seeds


def test_a_task_on_which_all_score_the_same_is_no_hope_however_it_is_rounded() -> None:
    seeds = np.array([-1.5, -0.5, 0, 0.5, 1.5, 2, -2])
    for constant in (0.1, 0.7, 33.3):
        known = named(np.array([[seeds, np.full(7, constant)], [seeds + 0.4, np.full(7, constant)]]))
        even, alone = (
            forecast({name: dict([*row.items()][:tasks]) for name, row in known.items()}, Design(7, by_spread=True))
            for tasks in (2, 1)
        )
        assert even[0].within == pytest.approx(alone[0].within, abs=0.02)


def test_seeds_for_one_test_by_hand() -> None:
    """V = 2·1 with D = 1: 2·1.96² = 7.7 seeds in all; twice the difference takes a quarter, and one seed at least."""
    seeds = np.array([-1.0, 0, 1])
    assert more_seeds([seeds], [seeds + 1]) == 8 - 3
    assert more_seeds([seeds], [seeds + 2]) == 1
    assert more_seeds([seeds] * 2, [seeds + 1] * 2) == 1
    assert more_seeds([seeds], [seeds + 0.1]) == math.ceil(200 * 1.959964**2) - 3
    assert more_seeds([seeds], [seeds]) == math.inf
    assert math.isnan(more_seeds([seeds[:1]], [seeds]))
    assert more_seeds([seeds * 0], [seeds * 0 + 1e-310]) == math.inf, "hardly a number"
    assert more_seeds([seeds], [seeds + 1e-3]) == pytest.approx(2e6 * 1.959964**2, rel=1e-6), "told at once"
    assert more_seeds([seeds], [seeds + 1e-12]) == math.inf
    assert more_seeds([seeds[:2]], [seeds[:2] + 1e6], level=1e-6) == 12 - 2  # 2/C(2n, n) first falls below it at 12
