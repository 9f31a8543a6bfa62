"""Rewards row by row: which are off, and what they have in common."""

from typing import Any

import numpy as np
import pytest

from understudy.envs.physics.reward_rows import RewardRows, agree, fit_line, judge_rewards

TRUE = np.random.default_rng(0).normal(0.0, 2.0, 60)


def judge(recorded: Any, predicted: Any = TRUE, ends: Any = None, exact: Any = None) -> RewardRows:
    rows = np.asarray(recorded, np.float64)
    following, previous = np.append(rows[1:], np.nan), np.append(np.nan, rows[:-1])
    everywhere = np.ones(len(rows), bool)
    terminated = ~everywhere if ends is None else ends
    return judge_rewards(rows, predicted, everywhere if exact is None else exact, following, previous, terminated)


def some(wrong: Any, rows: Any) -> Any:
    changed = TRUE.copy()
    changed[rows] = np.broadcast_to(wrong, TRUE.shape)[rows]
    return changed


def test_rounding_is_not_off() -> None:
    rows = judge(TRUE.astype(np.float32))
    assert rows.judged.all()
    assert not rows.off.any()
    assert rows.pattern == "none"
    large = 1e6 * TRUE
    assert agree(large.astype(np.float32).astype(np.float64), large).all()
    assert not agree(np.array([np.nan]), np.array([np.nan])).any()


def test_single_rows_are_counted_and_what_does_not_repeat_is_not_judged() -> None:
    exact = np.ones(60, bool)
    exact[7] = False
    rows = judge(some(TRUE + 1e-3 * np.arange(60), [7, 20, 41]), exact=exact)
    assert (np.flatnonzero(rows.off).tolist(), int(rows.judged.sum())) == ([20, 41], 59)


@pytest.mark.parametrize("rows", [slice(None), [3, 9, 10, 30, 44]])
def test_patterns(rows: Any) -> None:
    assert judge(some(-TRUE, rows)).pattern == "negated"
    assert judge(some(np.random.default_rng(1).permutation(TRUE), rows)).pattern == "other"
    line = judge(some(-TRUE + 0.7, rows))
    assert line.pattern == "affine"
    assert [line.factor, line.shift] == pytest.approx([-1, 0.7])
    assert judge(some(0 * TRUE, rows)).pattern == "affine"


def test_late_and_early() -> None:
    assert judge(np.append(0.0, TRUE[:-1])).pattern == "late"
    assert judge(np.append(TRUE[1:], 0.0)).pattern == "early"
    half = np.append(TRUE[:30], np.append(0.0, TRUE[30:-1]))
    rows = judge(half)
    assert (rows.pattern, int(rows.off.sum())) == ("late", 30)


def test_rewards_that_are_all_the_same_are_never_shifted() -> None:
    """Of sparse rewards, the neighbour's is the expected one by chance."""
    sparse = np.zeros(60)
    rows = judge(np.where(np.arange(60) % 10 == 5, 1.0, sparse), sparse)
    assert rows.pattern == "other"
    assert judge(-np.ones(60), np.ones(60)).pattern == "negated"


def test_a_reward_for_the_end() -> None:
    ends = np.arange(60) % 20 == 19
    rows = judge(np.where(ends, TRUE - 100, TRUE), ends=ends)
    assert (rows.pattern, np.flatnonzero(rows.off).tolist()) == ("ends", [19, 39, 59])
    assert judge(TRUE - 100, ends=np.ones(60, bool)).pattern != "ends"


def test_lines() -> None:
    x = np.linspace(-2, 5, 21)
    y = 0.3 * x - 2
    y[[4, 11]] = 50.0  # two that are not on it
    assert list(fit_line(x, y)) == pytest.approx([0.3, -2])
    assert fit_line(np.ones(5), np.arange(5.0)) == (1.0, 0.0)
    assert fit_line(x[:0], x[:0]) == (1.0, 0.0)
