"""Few seeds, said honestly: estimates over tasks, and how far to believe them.

Scores of a method are one array of seeds [n] per task: one number per seed, never one per episode. Every task weighs
the same, however many of its seeds are finished; where all have equally many, numbers are those of Agarwal et al. 2021
(Deep RL at the edge of the statistical precipice, arXiv 2108.13264) to the bit.

    mean     mean over tasks of x̄ₜ                                               `mean`
    median   median over tasks of x̄ₜ                                             `median`
    IQM      mean of the middle half of all x, ⌊N/4⌋ cut from each end           `iqm`
    gap      γ − mean min(x, γ)                                                  `optimality_gap`
    P(A > B) mean over tasks of P(aₜ > bₜ) + ½·P(aₜ = bₜ)                        `probability_of_improvement`
    F̂(τ)     mean over tasks of the share of seeds above τ                       `performance_profile`
    [lo, hi] percentiles of the estimate over samples of seeds with replacement, within tasks   `interval`

An interval says what other seeds would have given, on these tasks; nothing of other tasks. One seed says nothing of
others: its limits are NaN.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.core.arguments import as_count
from understudy.core.errors import ConfigError, DataError

Array = NDArray[np.float64]
Tasks = Sequence[Array]
"""Of one method: per task its seeds' scores [n]; inside, samples of them [draws, n]."""
Statistic = Callable[[Tasks], float]
PairStatistic = Callable[[Tasks, Tasks], float]
LARGEST = 1e100
"""Scores beyond it are of runs that diverged; their squares would be infinite."""


@final
@dataclass(frozen=True)
class Estimate:
    """A number and the interval around it; NaN limits where nothing is known of them."""

    value: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Band:
    """The same at many points: [points] each."""

    middle: Array
    low: Array
    high: Array


def mean(tasks: Tasks) -> float:
    """Mean over tasks of the mean over seeds."""
    return float(_mean(_checked(tasks)))


def median(tasks: Tasks) -> float:
    """Median over tasks of the mean over seeds: half of the tasks may be hopeless without moving it."""
    return float(_median(_checked(tasks)))


def iqm(tasks: Tasks) -> float:
    """Interquartile mean: of all scores of all tasks, the mean of the middle half.

    Where tasks have unequally many seeds, each seed counts so often that all tasks count alike: lcm/n times.
    """
    return float(_iqm(_checked(tasks)))


def optimality_gap(tasks: Tasks, target: float = 100.0) -> float:
    """How much is missing to `target` on average, where being better than it makes up for nothing."""
    return float(_optimality_gap(_checked(tasks), target))


def probability_of_improvement(a: Tasks, b: Tasks) -> float:
    """How probably a seed of A beats one of B on the same task; ½ where they tie."""
    return float(_probability_of_improvement(*_checked_pair(a, b)))


def performance_profile(tasks: Tasks, thresholds: ArrayLike) -> Array:
    """Share of seeds above each threshold [k], tasks weighing alike."""
    above = [_above(scores, thresholds).mean(0) for scores in _checked(tasks)]
    return np.asarray(np.mean(above, axis=0))


def average_score_profile(tasks: Tasks, thresholds: ArrayLike) -> Array:
    """Share of tasks whose mean over seeds is above each threshold [k]."""
    means = np.array([scores.mean() for scores in _checked(tasks)])
    return np.asarray(_above(means, thresholds).mean(0))


def difference(statistic: Statistic) -> PairStatistic:
    """How much larger it is for A than for B, to be given to `paired_interval`."""
    return partial(_difference, statistic)


def interval(
    statistic: Statistic, tasks: Tasks, *, draws: int = 2000, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """An estimate with its percentile interval, seeds being drawn again within their tasks.

    Too narrow for few seeds, as every bootstrap: three seeds know little of what others would do.
    """
    known = _checked(tasks)
    value = statistic(known)
    if not _varies(known):
        return Estimate(value, math.nan, math.nan)
    samples = _resampled(known, as_count(draws, "draws"), _generator(seed))
    return Estimate(value, *map(float, _limits(_over_draws(statistic, samples), confidence)))


def paired_interval(
    statistic: PairStatistic, a: Tasks, b: Tasks, *, draws: int = 2000, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """The same for what compares two methods: their seeds are drawn independently, whatever their numbers are."""
    first, second = _checked_pair(a, b)
    value = statistic(first, second)
    if not (_varies(first) and _varies(second)):
        return Estimate(value, math.nan, math.nan)
    samples = [
        _resampled(tasks, as_count(draws, "draws"), _generator(seed, which))
        for which, tasks in enumerate((first, second), start=1)
    ]
    return Estimate(value, *map(float, _limits(_over_draws(statistic, *samples), confidence)))


def profile_band(
    tasks: Tasks, thresholds: ArrayLike, *, draws: int = 2000, confidence: float = 0.95, seed: int = 0
) -> Band:
    """A performance profile with its interval at each threshold (pointwise)."""
    known, rng = _checked(tasks), _generator(seed)
    middle = performance_profile(known, thresholds)
    if not _varies(known):
        return Band(middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan))
    sampled = np.zeros((as_count(draws, "draws"), len(middle)))
    for scores in known:  # how often each seed was drawn, instead of its scores
        seeds = len(scores)
        often = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
        sampled += often @ _above(scores, thresholds).astype(np.float64) / (seeds * len(known))
    return Band(middle, *_limits(sampled, confidence))


def band(
    curves: ArrayLike, *, middle: str = "mean", draws: int = 2000, confidence: float = 0.95, seed: int = 0
) -> Band:
    """Curves of seeds [S, n] as their mean (or `iqm`) with a pointwise interval at each of n points.

    Seeds are drawn whole, so that a band belongs together. An evaluation that a seed lacks is NaN: there the others
    decide, and where fewer than two have one the limits are NaN. It is no band for the whole curve: of many points
    some lie outside.
    """
    rows = np.asarray(curves, np.float64)
    if rows.ndim != 2 or not len(rows):
        raise DataError("curves", "wrong shape", got=list(rows.shape), expected="[seeds, points], at least one seed")
    if np.isinf(rows).any():
        raise DataError("curves", "infinite values", do="Leave them out (NaN), or the runs that diverged.")
    if middle not in ("mean", "iqm"):
        raise ConfigError("band.middle", "no such middle", got=middle, expected="mean or iqm")
    known = ~np.isnan(rows)
    often = _generator(seed).multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=as_count(draws, "draws"))
    weighted = _weighted_mean if middle == "mean" else _weighted_iqm
    value = weighted(np.ones((1, len(rows)), np.int64), rows, known)[0]
    limits = np.array(_limits(weighted(often, rows, known), confidence))
    limits[:, known.sum(0) < 2] = np.nan
    return Band(value, *limits)


def align(curves: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[NDArray[np.int64], Array]:
    """Curves (updates [n], values [n]) of seeds on one axis: updates [m] at which any was evaluated, values [S, m] with
    NaN where a seed was not. Nothing is interpolated."""
    known = [(np.asarray(updates, np.int64), np.asarray(values, np.float64)) for updates, values in curves]
    for number, (updates, values) in enumerate(known, start=1):
        if updates.shape != values.shape or updates.ndim != 1:
            got = f"{list(updates.shape)} and {list(values.shape)}"
            raise DataError(f"curve {number}", "a value for each update is wanted", got=got, expected="[n] and [n]")
    axis = np.unique(np.concatenate([updates for updates, _ in known])) if known else np.zeros(0, np.int64)
    rows = np.full((len(known), len(axis)), np.nan)
    for row, (updates, values) in zip(rows, known, strict=True):
        row[np.searchsorted(axis, updates)] = values
    return axis, rows


def selection_bias(evaluations: int) -> float:
    """How far the best of so many equally good evaluations lies above what they are worth, in standard deviations of
    one of them: E max of n standard normal numbers. Those of a run also differ in worth, so this is
    what `best` may flatter, not what it does."""
    if evaluations < 1:
        raise ConfigError("selection_bias.evaluations", "wrong number", got=evaluations, expected="1 or more")
    points = np.linspace(-9.0, 9.0, 7201)
    below = np.array([0.5 * math.erfc(-point / math.sqrt(2)) for point in points]) ** evaluations
    return float(np.trapezoid(np.heaviside(points, 0.5) - below, points))  # E X = ∫ [x > 0] − F(x)


def _task_means(tasks: Tasks) -> Array:
    """[..., tasks]"""
    if _alike(tasks):
        return np.asarray(np.stack(tasks, -1).mean(-2))  # in the order in which others add, to the bit
    return np.stack([scores.mean(-1) for scores in tasks], -1)


def _alike(tasks: Tasks) -> bool:
    return len({scores.shape[-1] for scores in tasks}) == 1


def _side_by_side(tasks: Tasks) -> Array:
    """Tasks of equally many seeds [..., n·T]: the first seed of each task, the second of each …"""
    values = np.stack(tasks, -1)
    return values.reshape(*values.shape[:-2], -1)


def _mean(tasks: Tasks) -> Array:
    return np.asarray(_task_means(tasks).mean(-1))


def _median(tasks: Tasks) -> Array:
    return np.asarray(np.median(_task_means(tasks), axis=-1))


def _iqm(tasks: Tasks) -> Array:
    if _alike(tasks):
        values = _side_by_side(tasks)
        count = values.shape[-1]
        cut = count // 4
        return np.asarray(np.partition(values, (cut, count - cut - 1), -1)[..., cut : count - cut].mean(-1))
    sizes = [scores.shape[-1] for scores in tasks]
    together = min(math.lcm(*sizes), 2**40)  # of sizes without common divisors no integer counts the seeds
    weights = np.concatenate([np.full(size, together / size) for size in sizes])
    values = np.concatenate(tasks, axis=-1)
    order = values.argsort(-1)
    return _middle_half(np.take_along_axis(values, order, -1), weights[order])


def _middle_half(values: Array, weights: NDArray[np.int64] | Array) -> Array:
    """Mean of sorted values [..., n], each counted `weights` times, without the ⌊N/4⌋ smallest and largest."""
    upto = weights.cumsum(-1)
    total = upto[..., -1:]
    cut = total // 4
    kept = np.minimum(upto, total - cut) - np.maximum(upto - weights, cut)
    kept = np.maximum(kept, 0)
    return np.asarray((kept * values).sum(-1) / kept.sum(-1))


def _optimality_gap(tasks: Tasks, target: float = 100.0) -> Array:
    capped = [np.minimum(scores, target) for scores in tasks]
    return np.asarray(target - (_side_by_side(capped).mean(-1) if _alike(tasks) else _mean(capped)))


def _probability_of_improvement(a: Tasks, b: Tasks) -> Array:
    wins = [_wins(first, second) for first, second in zip(a, b, strict=True)]
    return np.asarray(np.mean(wins, axis=0))


def _wins(a: Array, b: Array) -> Array:
    """Share of pairs [..., n] × [..., m] in which A is higher, ties by half."""
    first, second = a[..., :, None], b[..., None, :]
    higher = (first > second).sum((-2, -1)) + (first >= second).sum((-2, -1))
    return np.asarray(higher / 2 / (a.shape[-1] * b.shape[-1]))


def _difference(statistic: Statistic, a: Tasks, b: Tasks) -> float:
    return statistic(a) - statistic(b)


OVER_DRAWS: dict[Callable[..., float], Callable[..., Array]] = {
    mean: _mean,
    median: _median,
    iqm: _iqm,
    optimality_gap: _optimality_gap,
    probability_of_improvement: _probability_of_improvement,
}
"""What computes them for all draws at once; any other statistic is called draw by draw."""


def _over_draws(statistic: Callable[..., float], *samples: Tasks) -> Array:
    """A statistic of each draw [draws], of one method's samples or of two."""
    if isinstance(statistic, partial) and statistic.func is _difference:
        first, second = samples
        return _over_draws(statistic.args[0], first) - _over_draws(statistic.args[0], second)
    plain, settings = statistic, dict[str, Any]()
    if isinstance(statistic, partial) and not statistic.args:
        plain, settings = statistic.func, statistic.keywords
    if plain in OVER_DRAWS:
        return OVER_DRAWS[plain](*samples, **settings)
    draws = len(samples[0][0])
    return np.array([statistic(*([task[i] for task in tasks] for tasks in samples)) for i in range(draws)])


def _resampled(tasks: Tasks, draws: int, rng: np.random.Generator) -> Tasks:
    """Per task as many of its seeds again, with replacement [draws, n]."""
    return [scores[rng.integers(len(scores), size=(draws, len(scores)))] for scores in tasks]


def _weighted_mean(often: NDArray[np.int64], rows: Array, known: NDArray[np.bool_]) -> Array:
    """Of rows [S, n], each counted `often` [draws, S] times where it is known: [draws, n]."""
    with np.errstate(invalid="ignore"):  # no seed that was drawn has this evaluation
        return np.asarray((often @ np.where(known, rows, 0.0)) / (often @ known.astype(np.float64)))


def _weighted_iqm(often: NDArray[np.int64], rows: Array, known: NDArray[np.bool_]) -> Array:
    found = np.full((len(often), rows.shape[1]), np.nan)
    for point in range(rows.shape[1]):
        seeds = np.flatnonzero(known[:, point])
        seeds = seeds[rows[seeds, point].argsort()]
        drawn = often[:, seeds].sum(1) > 0
        found[drawn, point] = _middle_half(rows[seeds, point], often[drawn][:, seeds])
    return found


def _limits(sampled: Array, confidence: float) -> tuple[Any, Any]:
    if not 0 < confidence < 1:
        raise ConfigError("confidence", "wrong value", got=confidence, expected="between 0 and 1, as 0.95")
    tail = (1 - confidence) / 2
    if not np.isnan(sampled).any():
        low, high = np.quantile(sampled, [tail, 1 - tail], axis=0)
        return low, high
    limits = np.full((2, sampled.shape[1]), np.nan)
    for point in np.flatnonzero(~np.isnan(sampled).all(0)):
        limits[:, point] = np.nanquantile(sampled[:, point], [tail, 1 - tail])
    return limits[0], limits[1]


def _varies(tasks: Tasks) -> bool:
    """Whether every task has the two seeds that it takes to know how seeds differ."""
    return all(len(scores) > 1 for scores in tasks)


def _above(scores: Array, thresholds: ArrayLike) -> NDArray[np.bool_]:
    """[n, k]"""
    limits = np.atleast_1d(np.asarray(thresholds, np.float64))
    if limits.ndim != 1 or np.isnan(limits).any():
        raise DataError("thresholds", "not numbers in a row", got=limits.tolist(), expected="[k]")
    return np.asarray(scores[:, None] > limits)


def _generator(seed: int, which: int = 0) -> np.random.Generator:
    return np.random.default_rng([as_count(seed, "seed", least=0), which])


def _checked_pair(a: Tasks, b: Tasks) -> tuple[list[Array], list[Array]]:
    first, second = _checked(a), _checked(b)
    if len(first) != len(second):
        got = f"{len(first)} and {len(second)} tasks"
        raise DataError("scores", "two methods are compared on the same tasks", got=got, do="Leave out the others.")
    return first, second


def _checked(tasks: Tasks) -> list[Array]:
    """As arrays of numbers, or an error that says which task is none."""
    known = [seed_scores(scores, f"scores of task {number}") for number, scores in enumerate(tasks, start=1)]
    if not known:
        raise DataError("scores", "no task", expected="one array of seeds per task")
    for number, scores in enumerate(known, start=1):
        if not len(scores):
            raise DataError(f"scores of task {number}", "wrong shape", got=[0], expected="[seeds], at least one")
    return known


def seed_scores(values: ArrayLike, where: str) -> Array:
    """One finite number per seed [n], or an error that says what else they are."""
    try:
        known = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(where, "not numbers", got=values, expected="[seeds]") from None
    if known.ndim != 1:
        do = "Of episodes give their mean: one number per seed." if known.ndim > 1 else ""
        raise DataError(where, "wrong shape", got=list(known.shape), expected="[seeds]", do=do)
    if not (wrong := ~(np.abs(known) <= LARGEST)).any():
        return known
    do = "Give a run that failed the score of doing nothing, or leave this seed out and say so."
    raise DataError(where, "must be finite numbers", got=known[wrong][0], expected=f"at most {LARGEST:g}", do=do)
