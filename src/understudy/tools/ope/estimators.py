"""Estimators of what a policy π is worth, from episodes of another one, β. All are ratios of sums over episodes:

    V̂ = Σ_m Σ_i c_i·x_im / Σ_i c_i·z_im

so that a bootstrap over episodes is nothing but other counts c. With ρ_t = π(a_t|s_t)/β(a_t|s_t) and their product
ρ_{0:t}:

    IS     mean of ρ_{0:T}·G                                                        `importance_sampling`
    WIS    Σ ρ_{0:T}·G / Σ ρ_{0:T}                                                  `weighted_importance_sampling`
    PDIS   mean of Σ_t γᵗ·ρ_{0:t}·r_t                                               `per_decision`
    WPDIS  Σ_t γᵗ·Σ ρ_{0:t}·r_t / Σ ρ_{0:t}                                         `weighted_per_decision`
    DR     mean of D_0,  D_t = V̂(s_t) + ρ_t·(r_t + γ·D_{t+1} − Q̂(s_t,a_t))           `doubly_robust`
    WDR    Σ_t γᵗ·[ Σ w_t·(r_t − Q̂_t) + Σ w_{t−1}·V̂_t ],  w_t = ρ_{0:t}/Σ ρ_{0:t}     `weighted_doubly_robust`
    value  mean of V̂(s_0)                                                           `initial_values`

G is the discounted return. Precup, Sutton and Singh 2000; Jiang and Li 2016 (arXiv:1511.03722); Thomas and Brunskill
2016 (arXiv:1604.00923). After its end an episode has reward 0 and keeps its weight. What would have come after a cut is
nothing to those who only read rewards; the doubly robust take what the critic expects of the last state.

Where no episode has any weight left, WIS and WPDIS know nothing, and are NaN; WDR stays with what the critic expects.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.index import EpisodeIndex

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Steps:
    """Episodes side by side [E, T]; behind an episode's end nothing is inside, and rewards are 0."""

    reward: Array
    log_ratio: Array
    """log π(a|s) − log β(a|s); −inf where π would never; 0 behind the end."""
    inside: NDArray[np.bool_]

    @classmethod
    def of(cls, rewards: Array, log_ratios: Array, lengths: NDArray[np.int64]) -> "Steps":
        """From columns [steps] of episodes one behind the other."""
        inside = np.arange(lengths.max()) < lengths[:, None]
        return cls(unfold(rewards, inside), unfold(log_ratios, inside), inside)


@final
@dataclass(frozen=True)
class Judgements:
    """What a critic says of the same steps [E, T], 0 behind the end, and of what follows the last of them [E]."""

    q: Array
    """Q̂(s_t, a_t) of the actions that were taken."""
    value: Array
    """V̂(s_t) = E_{a~π} Q̂(s_t, a)."""
    beyond: Array
    """V̂ of the state an episode was cut in; 0 where it terminated."""

    @property
    def known(self) -> bool:
        """All are numbers: the critic did not go beyond them."""
        return all(bool(np.isfinite(part).all()) for part in (self.q, self.value, self.beyond))


def judgements(first: Array, q: Array, after: Array, rewards: Array, index: EpisodeIndex, gamma: float) -> Judgements:
    """From V̂(s_0) [E], and of every step Q̂(s,a), V̂ of the state after it, and its reward [steps].

    What followed a last step is unknown where its successor was not recorded: there it corrects nothing.
    """
    last, value = index.ends - 1, np.concatenate([[0.0], after[:-1]])
    value[index.starts] = first
    uncorrected = (q[last] - rewards[last]) / gamma
    beyond = np.where(index.terminated, 0.0, np.where(index.final_known, after[last], uncorrected))
    inside = np.arange(index.lengths.max()) < index.lengths[:, None]
    return Judgements(unfold(q, inside), unfold(value, inside), beyond)


@final
@dataclass(frozen=True)
class Terms:
    """x and z [E, M] of an estimate."""

    numerator: Array
    denominator: Array
    without: float = math.nan
    """A part of which no episode has any weight."""


def unfold(column: Array, inside: NDArray[np.bool_]) -> Array:
    """A column [steps] as [E, T], 0 where nothing is inside."""
    table = np.zeros(inside.shape)
    table[inside] = column
    return table


def estimate(terms: Terms) -> float:
    return float(estimates(terms, np.ones((1, len(terms.numerator))))[0])


def estimates(terms: Terms, counts: Array) -> Array:
    """One for every row of counts of episodes [D, E] → [D]."""
    above, below = counts @ terms.numerator, counts @ terms.denominator
    parts: Array = np.divide(above, below, out=np.full_like(above, terms.without), where=below != 0).sum(1)
    return parts


def discounts(steps: int, gamma: float) -> Array:
    """γᵗ [T]."""
    powers: Array = gamma ** np.arange(steps, dtype=np.float64)
    return powers


def discounted_returns(reward: Array, gamma: float) -> Array:
    """G [E] of rewards [E, T]."""
    total: Array = reward @ discounts(reward.shape[1], gamma)
    return total


def episode_returns(rewards: Array, lengths: NDArray[np.int64], gamma: float) -> Array:
    """G [E] of a column [steps] of episodes one behind the other: no table, which one long episode would make wide."""
    starts = np.cumsum(lengths) - lengths
    step = np.arange(len(rewards)) - np.repeat(starts, lengths)
    total: Array = np.add.reduceat(rewards * discounts(int(lengths.max()), gamma)[step], starts)
    return total


def weights(steps: Steps) -> Array:
    """log ρ_{0:t} [E, T]."""
    running: Array = np.cumsum(steps.log_ratio, axis=1)
    return running


def importance_sampling(steps: Steps, gamma: float) -> Terms:
    with np.errstate(over="ignore", invalid="ignore"):
        rho = np.exp(weights(steps)[:, -1])
        return _mean(_numbers(rho * discounted_returns(steps.reward, gamma)))


def weighted_importance_sampling(steps: Steps, gamma: float) -> Terms:
    rho = _relative(weights(steps)[:, -1:])
    return Terms(rho * discounted_returns(steps.reward, gamma)[:, None], rho)


def per_decision(steps: Steps, gamma: float) -> Terms:
    with np.errstate(over="ignore", invalid="ignore"):
        rho = np.exp(weights(steps))
        return _mean(_numbers((rho * steps.reward) @ discounts(rho.shape[1], gamma)))


def weighted_per_decision(steps: Steps, gamma: float) -> Terms:
    rho = _relative(weights(steps))
    return Terms(rho * steps.reward * discounts(rho.shape[1], gamma), rho)


def doubly_robust(steps: Steps, judged: Judgements, gamma: float) -> Terms:
    after = judged.beyond
    with np.errstate(over="ignore", invalid="ignore"):
        rho = np.exp(steps.log_ratio)
        for t in range(steps.reward.shape[1] - 1, -1, -1):
            here = judged.value[:, t] + rho[:, t] * (steps.reward[:, t] + gamma * after - judged.q[:, t])
            after = np.where(steps.inside[:, t], here, after)
        return _mean(_numbers(after) if judged.known else after)


def weighted_doubly_robust(steps: Steps, judged: Judgements, gamma: float) -> Terms:
    """What lies beyond a cut is worth γᵀ·V̂, weighed as the last step."""
    size, powers = steps.reward.shape, discounts(steps.reward.shape[1] + 1, gamma)
    now = _relative(weights(steps))
    before = np.concatenate([np.ones((size[0], 1)), now[:, :-1]], axis=1)
    last = np.zeros(size)
    last[np.arange(size[0]), steps.inside.sum(1) - 1] = judged.beyond
    gained = now * (powers[:-1] * (steps.reward - judged.q) + powers[1:] * last)
    expected = before * powers[:-1] * judged.value
    return Terms(np.concatenate([gained, expected], axis=1), np.concatenate([now, before], axis=1), without=0.0)


def initial_values(values: Array) -> Terms:
    """Of V̂(s_0) [E]."""
    return _mean(values)


def effective_samples(log_weights: Array) -> float:
    """(Σw)²/Σw² of log-weights [E]: as many episodes of even weight would say as much."""
    w = _relative(log_weights[:, None])[:, 0]
    return float(w.sum() ** 2 / np.square(w).sum()) if w.any() else 0.0


def _mean(values: Array) -> Terms:
    return Terms(values[:, None], np.ones((len(values), 1)))


def _numbers(values: Array) -> Array:
    """Of episodes [E], or an error where a sum of as many of them need not be a number."""
    if not np.isfinite(np.abs(values).max() * len(values)):
        raise DataError(
            "importance weights",
            "too large for numbers: the policy does what the data's hardly ever did",
            do="Use a weighted method (wis, wpdis, wdr), or fqe.",
        )
    return values


def _relative(logs: Array) -> Array:
    """e^x [E, M] up to a factor of each column, which weighted estimates do not see: no column overflows."""
    top = logs.max(axis=0, keepdims=True)
    return np.exp(logs - np.where(np.isfinite(top), top, 0.0))
