"""How many more seeds it would take to decide a pair: an estimate, never a promise.

What is known of the difference δ of two methods after N seeds is taken as normal, and studies are played on from there:

    V   = 1/T²·Σₜ (s²ₐₜ + s²_bₜ)              what one more seed of both varies by   `_variance`
    δ   ~ N(D, V/N),   D_m ~ N(δ, V/m)        the difference after m seeds in all
    z_k : |D_m|/√(V/m) of a tie exceeds it with the share α/K that look k may spend   `_critical_values`

It decides nothing; `sequential.decide` does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.tools.experiments.sequential import (
    UNDECIDED,
    Decision,
    Decisions,
    Design,
    Scores,
    decide,
    spread,
)

Array = NDArray[np.float64]
STUDIES = 1000
HORIZON = 200
"""Groups after which a study that is played on gives up."""
HOPELESS = 1e9
"""So many seeds are as good as infinitely many."""


@final
@dataclass(frozen=True)
class Forecast:
    """Of an undecided pair."""

    a: str
    b: str
    seeds: float
    """More seeds per method and task in the middle of all studies; infinite where most of them never end, NaN where
    too few seeds are known to say."""
    low: float
    high: float
    """So many in one of ten studies, or fewer; and in nine of ten."""
    within: float
    """Share of studies that are decided within the looks that are left."""


def forecast(
    scores: Scores, design: Design | None = None, *, pairs: Sequence[tuple[str, str]] = ()
) -> tuple[Forecast, ...]:
    """For each pair that `decide` leaves undecided, how many seeds more."""
    design = design or Design()
    decisions = decide(scores, design, pairs=pairs)
    return tuple(
        forecast_pair(scores, pair, decisions, design) for pair in decisions.pairs if pair.verdict == UNDECIDED
    )


def forecast_pair(scores: Scores, pair: Decision, decisions: Decisions, design: Design) -> Forecast:
    """Looks beyond the last are played, too, for those who would plan a longer study."""
    tasks = [tuple(np.asarray(scores[name][task], np.float64) for name in (pair.a, pair.b)) for task in scores[pair.a]]
    known = min(len(seeds) for both in tasks for seeds in both)
    if known < 2:
        return Forecast(pair.a, pair.b, math.nan, math.nan, math.nan, math.nan)
    undecided = sum(other.verdict == UNDECIDED for other in decisions.pairs)
    difference, variance = _difference(tasks, design)
    group, begun = design.group, pair.seeds // design.group
    rng = np.random.default_rng([design.seed, known])
    paths = _played_on(difference, variance, known, group, begun, rng)  # [studies, looks from the next on]
    critical = _critical_values(design, design.alpha / undecided, len(tasks))[begun : begun + paths.shape[1]]
    crossed = paths > critical
    looks = np.where(crossed.any(1), begun + 1 + crossed.argmax(1), math.inf)
    more = np.maximum(looks * group - known, 1)
    low, middle, high = np.quantile(more, [0.1, 0.5, 0.9], method="higher")
    return Forecast(pair.a, pair.b, float(middle), float(low), float(high), float(np.mean(looks <= design.looks)))


def _difference(tasks: Sequence[tuple[Array, ...]], design: Design) -> tuple[float, float]:
    """D over tasks, and V."""
    scales = [spread(np.concatenate(both)) if design.by_spread else 1.0 for both in tasks]
    gaps = [float(a.mean() - b.mean()) / scale for (a, b), scale in zip(tasks, scales, strict=True)]
    return float(np.mean(gaps)), _variance(tasks, scales)


def _variance(tasks: Sequence[tuple[Array, ...]], scales: Sequence[float]) -> float:
    varying = [float(a.var(ddof=1) + b.var(ddof=1)) / scale**2 for (a, b), scale in zip(tasks, scales, strict=True)]
    return sum(varying) / len(tasks) ** 2


def _played_on(
    difference: float, variance: float, known: int, group: int, begun: int, rng: np.random.Generator
) -> Array:
    """|z| at each coming look [studies, looks]."""
    seeds = group * np.arange(begun + 1, begun + 1 + HORIZON)
    added = np.diff(seeds, prepend=known).clip(0)
    deviation = math.sqrt(variance)
    true = rng.normal(difference, deviation / math.sqrt(known), (STUDIES, 1))
    steps = rng.normal(size=(STUDIES, HORIZON)) * deviation * np.sqrt(added) + true * added
    sums = difference * known + steps.cumsum(1)
    total = known + added.cumsum()
    return np.asarray(np.abs(sums) / np.sqrt(max(variance, 1e-300) * total))


@lru_cache(maxsize=64)
def _critical_values(design: Design, level: float, tasks: int) -> Array:
    """What |z| must exceed at each look; at looks that have too few ways to deal their seeds, infinity."""
    rng = np.random.default_rng([design.seed, design.looks])
    steps = rng.normal(size=(20_000, design.looks)).cumsum(1) / np.sqrt(np.arange(1, design.looks + 1))
    left, values = np.abs(steps), []
    for look in range(1, design.looks + 1):
        ways = tasks * look * _log_ways(design.group)
        spent = round(level * look / design.looks * len(steps)) - (len(steps) - len(left))
        if math.log(2) - ways > math.log(level * look / design.looks) or spent < 1:
            values.append(math.inf)
            continue
        bound = float(np.sort(left[:, look - 1])[-spent - 1])
        values.append(bound)
        left = left[left[:, look - 1] <= bound]
    return np.array(values + [values[-1]] * HORIZON)


def more_seeds(a: Sequence[Array], b: Sequence[Array], level: float = 0.05) -> float:
    """How many more seeds per task a single test at `level` takes to tell A from B on these tasks, if their difference
    and spread are what they seem: (z/D)²·V in all. Infinite if they seem equal, NaN where a task has one seed."""
    tasks = [tuple(np.asarray(seeds, np.float64) for seeds in both) for both in zip(a, b, strict=True)]
    known = min(len(seeds) for both in tasks for seeds in both)
    if known < 2:
        return math.nan
    difference, variance = _difference(tasks, Design())
    if not difference:
        return math.inf
    ratio = NormalDist().inv_cdf(1 - level / 2) / difference
    if not (needed := variance * ratio * ratio) <= HOPELESS:  # nor NaN, of a difference that is hardly a number
        return math.inf
    total = max(math.ceil(needed), known + 1)
    while len(tasks) * _log_ways(total) < math.log(2 / level):  # too few ways to deal them
        total += 1
    return float(total - known)


def _log_ways(seeds: int) -> float:
    """Logarithm of the number of ways to deal the seeds of two methods: ln C(2n, n)."""
    return math.lgamma(2 * seeds + 1) - 2 * math.lgamma(seeds + 1)
