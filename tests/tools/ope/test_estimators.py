"""Estimators of off-policy evaluation against closed forms, and against walking through every trajectory there is."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.index import EpisodeIndex
from understudy.tools.ope import estimators as ope

Array = NDArray[np.float64]
GAMMA = 0.8
BETA, PI = np.array([[0.7, 0.3], [0.5, 0.5], [0.2, 0.8]]), np.array([[0.2, 0.8], [0.9, 0.1], [0.6, 0.4]])
REWARD = np.array([[0.0, 1.0], [1.0, 0.2], [2.0, 0.5]])
PLAIN: list[Callable[[ope.Steps, float], ope.Terms]] = [
    ope.importance_sampling,
    ope.weighted_importance_sampling,
    ope.per_decision,
    ope.weighted_per_decision,
]
ROBUST: list[Callable[[ope.Steps, ope.Judgements, float], ope.Terms]] = [ope.doubly_robust, ope.weighted_doubly_robust]


def bandit() -> ope.Steps:
    """O-38: seven times arm 0, which pays 1, three times arm 1, which pays 2."""
    arm = np.array([0] * 7 + [1] * 3)
    ratio = np.log(np.array([0.2 / 0.7, 0.8 / 0.3]))[arm]
    return ope.Steps.of(np.array([1.0, 2.0])[arm], ratio, np.ones(10, np.int64))


def test_the_bandit() -> None:
    """O-38: V 1.8, variance of one importance-sampled episode 5.350476, effective share .456522."""
    steps = bandit()
    for method in PLAIN:
        assert ope.estimate(method(steps, 0.9)) == pytest.approx(1.8)
    each = ope.importance_sampling(steps, 0.9).numerator[:, 0]
    assert each.var() == pytest.approx(5.350476, abs=1e-6)
    assert ope.effective_samples(ope.weights(steps)[:, -1]) / 10 == pytest.approx(0.456522, abs=1e-6)


def test_an_exact_critic_leaves_no_variance() -> None:
    """O-38."""
    steps = bandit()
    judged = ope.Judgements(steps.reward, np.full((10, 1), 1.8), np.zeros(10))
    each = ope.doubly_robust(steps, judged, 0.9).numerator[:, 0]
    assert np.allclose(each, 1.8, rtol=0, atol=1e-12)
    assert ope.estimate(ope.weighted_doubly_robust(steps, judged, 0.9)) == pytest.approx(1.8)


def walks() -> tuple[list[list[tuple[int, int]]], Array]:
    """All ways through three states in which action 0 at state 1 ends it, and how likely each is under β.

    From 0 the action leads to state 1 or 2, from there back to 0 and on, three steps at most.
    """
    found = []
    for actions in product((0, 1), repeat=3):
        state, walk = 0, []
        for action in actions:
            walk.append((state, action))
            if (state, action) == (1, 0):
                break
            state = (1 + action) if state == 0 else 0
        if walk not in found:
            found.append(walk)
    return found, np.array([np.prod([BETA[at] for at in walk]) for walk in found])


def enumerated() -> tuple[ope.Steps, list[list[tuple[int, int]]]]:
    """Every walk as often as β takes it: in these data nothing is left to chance."""
    found, chance = walks()
    counts = np.rint(chance * 1000).astype(int)
    assert counts.sum() == 1000
    assert np.allclose(counts, chance * 1000)
    episodes = [walk for walk, count in zip(found, counts, strict=True) for _ in range(count)]
    taken = [at for walk in episodes for at in walk]
    rewards = np.array([REWARD[at] for at in taken])
    ratios = np.log([PI[at] / BETA[at] for at in taken])
    return ope.Steps.of(rewards, ratios, np.array([len(walk) for walk in episodes])), episodes


def exact() -> float:
    """V^π of three steps from state 0, walk by walk."""
    found, _ = walks()
    chance = [np.prod([PI[at] for at in walk]) for walk in found]
    returns = [sum(GAMMA**t * REWARD[at] for t, at in enumerate(walk)) for walk in found]
    return float(np.dot(chance, returns))


def test_every_estimator_finds_the_value_where_nothing_is_left_to_chance() -> None:
    steps, episodes = enumerated()
    for method in PLAIN:
        assert ope.estimate(method(steps, GAMMA)) == pytest.approx(exact(), abs=1e-9), method
    rng = np.random.default_rng(0)
    q = rng.standard_normal((3, 2, 3))  # of state, action and time: wrong, and yet nothing is wrong with the estimate
    column = np.array([q[state, action, t] for walk in episodes for t, (state, action) in enumerate(walk)])
    value = np.array([PI[state] @ q[state, :, t] for walk in episodes for t, (state, _) in enumerate(walk)])
    judged = ope.Judgements(ope.unfold(column, steps.inside), ope.unfold(value, steps.inside), np.zeros(len(episodes)))
    for robust in ROBUST:
        assert ope.estimate(robust(steps, judged, GAMMA)) == pytest.approx(exact(), abs=1e-9), robust


def test_what_follows_a_cut_is_what_the_critic_expects() -> None:
    """With ratios of 1 and a critic that says 0: the return and the discounted value of the last state."""
    steps = ope.Steps.of(np.array([1.0, 2.0, 3.0]), np.zeros(3), np.array([2, 1]))
    nothing = np.zeros((2, 2))
    judged = ope.Judgements(nothing, nothing, np.array([10.0, 0.0]))
    expected = (1 + GAMMA * 2 + GAMMA**2 * 10 + 3) / 2
    for robust in ROBUST:
        assert ope.estimate(robust(steps, judged, GAMMA)) == pytest.approx(expected)


def test_counts_are_copies_of_episodes() -> None:
    """An estimate with counts equals that of data in which episodes stand so often: what a bootstrap needs."""
    steps, _ = enumerated()
    some = np.random.default_rng(1).integers(0, 1000, 40)
    counts = np.bincount(some, minlength=1000)[None].astype(float)
    copied = ope.Steps(steps.reward[some], steps.log_ratio[some], steps.inside[some])
    for method in PLAIN:
        assert ope.estimates(method(steps, GAMMA), counts)[0] == pytest.approx(ope.estimate(method(copied, GAMMA)))


def test_long_episodes_overflow_in_a_sentence_or_not_at_all() -> None:
    """e^2000 is no number: plain weights say so, and weighted ones never see it."""
    steps = ope.Steps.of(np.ones(4000), np.full(4000, 1.0), np.array([2000, 2000]))
    for method in (ope.importance_sampling, ope.per_decision):
        with pytest.raises(DataError, match=r"too large for numbers.*Use a weighted method"):
            method(steps, 1.0)
    assert ope.estimate(ope.weighted_importance_sampling(steps, 1.0)) == pytest.approx(2000)
    assert ope.estimate(ope.weighted_per_decision(steps, 1.0)) == pytest.approx(2000)
    nothing = np.zeros((2, 2000))
    with pytest.raises(DataError, match=r"too large for numbers.*Use a weighted method"):
        ope.doubly_robust(steps, ope.Judgements(nothing, nothing, np.zeros(2)), 1.0)
    lost = ope.doubly_robust(steps, ope.Judgements(nothing * np.nan, nothing, np.zeros(2)), 1.0)
    assert math.isnan(ope.estimate(lost)), "critics that went beyond all numbers are no fault of the weights"
    nearly = ope.Steps.of(np.full(2 * 709, 100.0), np.ones(2 * 709), np.array([709, 709]))
    for method in (ope.importance_sampling, ope.per_decision):
        with pytest.raises(DataError, match="too large for numbers"):
            method(nearly, 1.0)


def test_what_a_policy_would_never_do_counts_for_nothing() -> None:
    steps = ope.Steps.of(np.array([5.0, 1.0]), np.array([-np.inf, np.log(2.0)]), np.ones(2, np.int64))
    for method in PLAIN:
        assert ope.estimate(method(steps, 1.0)) == pytest.approx(1.0)
    assert ope.effective_samples(ope.weights(steps)[:, -1]) == 1.0
    never = ope.Steps.of(np.ones(2), np.full(2, -np.inf), np.ones(2, np.int64))
    assert ope.effective_samples(ope.weights(never)[:, -1]) == 0.0
    for method in (ope.weighted_importance_sampling, ope.weighted_per_decision):
        assert math.isnan(ope.estimate(method(never, 1.0))), "nothing is known, which is not 0"
    judged = ope.Judgements(np.zeros((2, 1)), np.array([[3.0], [5.0]]), np.zeros(2))
    assert ope.estimate(ope.weighted_doubly_robust(never, judged, 1.0)) == 4.0, "what the critic expects"


def test_columns_are_laid_beside_each_other() -> None:
    """V̂ of a step is that of the state after the one before; D walks back from what an episode's end is worth: nothing,
    the critic's word, or, where nobody knows what followed, not even the last step's correction."""
    rng, lengths = np.random.default_rng(0), np.array([3, 1, 4])
    first, (q, after, rewards, ratio) = rng.standard_normal(3), rng.standard_normal((4, 8))
    terminated, known = np.array([True, False, False]), np.array([True, True, False])
    index = EpisodeIndex(lengths, terminated, ~terminated, known)
    steps = ope.Steps.of(rewards, ratio, lengths)
    judged = ope.judgements(first, q, after, rewards, index, GAMMA)
    worth = []
    for episode, (start, length) in enumerate(zip((0, 3, 4), lengths, strict=True)):
        total = 0.0 if terminated[episode] else after[start + length - 1]
        for t in range(start + length - 1, start - 1, -1):
            value = first[episode] if t == start else after[t - 1]
            unknown = t == start + length - 1 and not known[episode]
            total = value + (0.0 if unknown else np.exp(ratio[t]) * (rewards[t] + GAMMA * total - q[t]))
        worth.append(total)
    assert np.allclose(ope.doubly_robust(steps, judged, GAMMA).numerator[:, 0], worth)
    assert np.allclose(ope.episode_returns(rewards, lengths, GAMMA), ope.discounted_returns(steps.reward, GAMMA))
