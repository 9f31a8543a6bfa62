"""A sum tree against running sums in plain Python: what is drawn, what it sums to, and that it never drifts."""

from itertools import accumulate

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.state import capture, restore
from understudy.sources.sampling.sum_tree import TOP, SumTree

ALMOST_ONE = 1 - 2.0**-53
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 9)), min_size=1, max_size=40)


def told(tree: SumTree, changes: list[tuple[int, int]], capacity: int) -> list[int]:
    """Set leaves in one call, as they come; the weights that there should be then."""
    rows = [number % capacity for number, _ in changes]
    tree.set(np.array(rows), np.array([float(weight) for _, weight in changes]))
    weights = [0] * capacity
    for row, (_, weight) in zip(rows, changes, strict=True):
        weights[row] = weight
    return weights


@settings(max_examples=80, deadline=None)
@given(capacity=st.integers(1, 90), top=st.sampled_from([2, 8, TOP]), changes=CHANGES, seed=st.integers(0, 99))
def test_it_draws_as_a_running_sum_does(capacity: int, top: int, changes: list[tuple[int, int]], seed: int) -> None:
    """Whole numbers add up exactly: so every row is known, also of leaves that were told twice."""
    tree = SumTree.of(capacity, top)
    weights = told(tree, changes, capacity)
    assert tree.total == sum(weights)
    if not sum(weights):
        return
    fractions = np.append(np.random.default_rng(seed).random(6), [0.0, 0.5])
    rows, share = tree.draw(fractions)
    levels = [(number + fraction) * (sum(weights) / 8) for number, fraction in enumerate(fractions)]
    expected = [next(row for row, running in enumerate(accumulate(weights)) if running > x) for x in levels]
    assert rows.tolist() == expected
    assert share.tolist() == [weights[row] / sum(weights) for row in expected]


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(2, 70), seed=st.integers(0, 10**6))
def test_what_weighs_nothing_is_never_drawn(capacity: int, seed: int) -> None:
    """Whatever is rounded: weights from 1e-30 to 1e30 side by side, most of them 0."""
    rng = np.random.default_rng(seed)
    tree = SumTree.of(capacity, top=4)
    weights = np.where(rng.random(capacity) < 0.7, 0.0, 10.0 ** rng.uniform(-30, 30, capacity))
    weights[rng.integers(capacity)] = 1.0
    tree.set(np.arange(capacity), weights)
    for fractions in (np.zeros(50), np.full(50, ALMOST_ONE), rng.random(50)):
        rows, share = tree.draw(fractions)
        assert (weights[rows] > 0).all()
        assert (share > 0).all()


def test_sums_are_a_function_of_the_leaves() -> None:
    """After thousands of changes they are, to the bit, those of a tree that was told once."""
    rng, capacity = np.random.default_rng(0), 1001
    tree = SumTree.of(capacity, top=16)
    for _ in range(300):
        tree.set(rng.integers(capacity, size=32), rng.random(32) ** 4)
    once = SumTree.of(capacity, top=16)
    once.set(np.arange(capacity), tree.weights(np.arange(capacity)))
    assert tree.total == once.total
    assert all(np.array_equal(left, right) for left, right in zip(tree.sums, once.sums, strict=True))
    assert len(tree.sums) == 6


def test_equal_weights_are_drawn_in_turn() -> None:
    """One row of each of B equal parts: of B leaves alike, each comes exactly once."""
    for capacity in (7, 64, 5000):
        tree = SumTree.of(capacity, top=16)
        tree.set(np.arange(capacity), 0.3)
        assert tree.draw(np.random.default_rng(0).random(capacity))[0].tolist() == [*range(capacity)]


def test_rows_come_as_often_as_they_weigh() -> None:
    """A part of the total is hit as often as it is long, within what so many parts allow."""
    rng = np.random.default_rng(0)
    weights = rng.random(300)
    tree = SumTree.of(300, top=16)
    tree.set(np.arange(300), weights)
    counts = np.zeros(300)
    for _ in range(400):
        np.add.at(counts, tree.draw(rng.random(64))[0], 1)
    expected = 400 * 64 * weights / weights.sum()
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()


def test_a_restored_tree_draws_on() -> None:
    """Its leaves are all there is to keep; sums that were of others are made anew."""
    rng = np.random.default_rng(0)
    tree, other = (SumTree.of(100, top=8) for _ in range(2))
    tree.set(np.arange(100), rng.random(100))
    other.set(np.arange(100), rng.random(100))
    fractions = rng.random(32)
    other.draw(fractions)
    state = capture(tree)
    assert [*state] == ["leaves"]
    restore(other, state, "test")
    assert other.total == tree.total
    assert other.draw(fractions)[0].tolist() == tree.draw(fractions)[0].tolist()
    assert torch.equal(other.leaves, tree.leaves)
