"""Am I sure yet? A test that may be looked at after every few seeds, and still errs in at most α of all studies.

Group-sequential permutation tests as in Mathieu et al. 2023 (AdaStop, arXiv 2306.10882). Seeds come in K groups of n
per method and task; after each group there is a look. If the methods of a class C do not differ, their seeds could as
well have been dealt out otherwise within a group and a task, and σ is one way to deal them:

    D_k(i, j; σ) = mean over tasks of x̄ᵢ − x̄ⱼ over the first k·n seeds, dealt by σ
    M_k(σ)       = max over compared pairs in C of |D_k(i, j; σ)|                                `largest_differences`
    b_k          = least b with #{σ: crossed before k, or M_k(σ) > b} ≤ α·(k/K)·#σ               `first_crossing`
    C differs    at the first look with M_k(id) > b_k

The actual seeds are one of the σ, all of which are equally probable; so a class without differences crosses with
probability at most α, exactly, whatever the distribution of scores and however many σ are drawn.

Several pairs: what can be true of all methods together is a partition of them into classes that do not differ. A
partition is refuted when one of its classes differs, class C being tested at α·|C|/(seeds of all its classes, counted
in methods); a pair is decided when every partition that keeps it together is refuted (closed testing, Marcus et al.
1976): the probability of any wrong difference among all pairs is at most α.

Differs from the paper in: classes are dealt out among themselves, where the paper deals out each pair with the same σ,
so that the error rate is exact for any pattern of equal and unequal methods and not only for many seeds; several tasks;
budgets that a look could not use, for few seeds have few σ, are left to later looks; no early acceptance (stopping
early without a decision never adds an error).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.core.arguments import as_count
from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.tools.experiments.statistics import seed_scores

Array = NDArray[np.float64]
Scores = Mapping[str, Mapping[str, ArrayLike]]
"""Method → task → one number per seed, in the order in which the seeds were planned."""
BETTER, WORSE, UNDECIDED, ALIKE = "better", "worse", "undecided", "cannot tell apart"
MOST_CLOSED = 8
"""Of more methods there are too many partitions; then each pair is tested at α/pairs."""


@final
@dataclass(frozen=True)
class Design:
    """Fixed before the first seed: what is changed afterwards breaks the promise."""

    group: int = 5
    """n: seeds per method and task between two looks."""
    looks: int = 5
    """K: looks at most; who cannot be told apart by then, cannot."""
    alpha: float = 0.05
    """Probability of any wrong difference in the whole study."""
    draws: int = 2000
    """Ways to deal that are drawn, the actual one among them; all of them where there are no more than that."""
    seed: int = 0
    by_spread: bool = False
    """Divide each task by the standard deviation of its scores, where tasks are not on one scale."""

    def __post_init__(self) -> None:
        for name, number in (("group", self.group), ("looks", self.looks), ("draws", self.draws)):
            as_count(number, f"design.{name}")
        as_count(self.seed, "design.seed", least=0)
        if not 0 < self.alpha < 1:
            raise ConfigError("design.alpha", "wrong value", got=self.alpha, expected="between 0 and 1, as 0.05")

    def ways(self, tasks: int) -> int:
        """To deal the seeds of two methods out otherwise, when all looks have been taken."""
        return math.prod([math.comb(2 * self.group, self.group)] * (self.looks * tasks))


@final
@dataclass(frozen=True)
class Decision:
    """What is known of a pair."""

    a: str
    b: str
    verdict: str
    """A is better or worse than B; undecided; or there are no more looks and they cannot be told apart."""
    look: int
    """At which it was decided; 0 if it was not."""
    difference: float
    """A − B on average over tasks, at that look or the last one; NaN before the first. In standard deviations if
    `by_spread`."""
    seeds: int
    """Per method and task, that this rests on."""


@final
@dataclass(frozen=True)
class Decisions:
    """What is known of all pairs, and what it takes to know more."""

    pairs: tuple[Decision, ...]
    wanted: Mapping[str, int]
    """Method → seeds per task that the next look needs, of methods with undecided pairs; the others need no more."""

    @property
    def settled(self) -> bool:
        return not self.wanted

    def of(self, a: str, b: str) -> Decision:
        """The decision about this pair, whichever of them was named first."""
        for known in self.pairs:
            if (known.a, known.b) == (a, b):
                return known
            if (known.a, known.b) == (b, a):
                verdict = {BETTER: WORSE, WORSE: BETTER}.get(known.verdict, known.verdict)
                return Decision(a, b, verdict, known.look, -known.difference, known.seeds)
        raise ConfigError("decisions", "these two are not compared", got=f"{a}, {b}")


def decide(
    scores: Scores, design: Design | None = None, *, pairs: Sequence[tuple[str, str]] = (), lowest_is_best: bool = False
) -> Decisions:
    """What the seeds so far say about every pair, or about those that are named.

    Asked again with more seeds it never takes back what it decided. A look needs a whole group of every method of a
    class on every task; seeds beyond whole groups wait for the next look.
    """
    design = design or Design()
    study = _Study.of(scores, design, pairs)
    decided = _decided_looks(study, design)
    decisions = [_decision(study, design, pair, decided[pair], lowest_is_best) for pair in study.pairs]
    waiting = [decision for decision in decisions if decision.verdict == UNDECIDED]
    wanted = {
        name: (min(study.looks[which], design.looks - 1) + 1) * design.group
        for which, name in enumerate(study.methods)
        if any(name in (decision.a, decision.b) for decision in waiting)
    }
    return Decisions(tuple(decisions), wanted)


Class = frozenset[int]
Pair = tuple[int, int]


@final
@dataclass(frozen=True)
class _Study:
    """Scores as arrays, and how many looks each method has reached."""

    methods: Sequence[str]
    tasks: Sequence[Sequence[Array]]
    """[method][task][seeds]"""
    looks: Sequence[int]
    pairs: Sequence[Pair]

    @classmethod
    def of(cls, scores: Scores, design: Design, pairs: Sequence[tuple[str, str]]) -> "_Study":
        methods = list(scores)
        tasks = _arrays(scores)
        looks = [min(min(len(seeds) for seeds in row) // design.group, design.looks) for row in tasks]
        return cls(methods, tasks, looks, _numbered(pairs, methods))

    @cached_property
    def compared(self) -> frozenset[Pair]:
        """The pairs, the smaller number first."""
        return frozenset((min(pair), max(pair)) for pair in self.pairs)

    def groups(self, members: Sequence[int], group: int) -> Array:
        """Scores of these methods as they were dealt: [looks, tasks, members·n]."""
        looks = min(self.looks[member] for member in members)
        rows = [[seeds[: looks * group] for seeds in self.tasks[member]] for member in members]
        dealt = np.array(rows).reshape(len(members), len(rows[0]), looks, group)
        return dealt.transpose(2, 1, 0, 3).reshape(looks, len(rows[0]), len(members) * group)


def _decision(study: _Study, design: Design, pair: Pair, look: int, lowest_is_best: bool) -> Decision:
    groups = study.groups(pair, design.group)
    look = look if look <= len(groups) else 0  # others are ahead: it is decided once these two are there
    used = look or len(groups)
    name_a, name_b = (study.methods[which] for which in pair)
    if not used:
        return Decision(name_a, name_b, UNDECIDED, 0, math.nan, 0)
    scales = _spreads(groups, design)[used - 1, :, None]
    first, second = np.split((groups - groups[:1, :, :1])[:used] / scales, 2, axis=-1)
    difference = float(first.mean() - second.mean())
    verdict = ALIKE if len(groups) == design.looks else UNDECIDED
    if look:
        verdict = BETTER if (difference > 0) != lowest_is_best else WORSE
    return Decision(name_a, name_b, verdict, look, difference, used * design.group)


def _decided_looks(study: _Study, design: Design) -> dict[Pair, int]:
    """At which look each pair was decided, 0 where it is not."""
    if len(study.methods) > MOST_CLOSED:
        return _pair_by_pair(study, design)
    found: dict[Class, Array] = {}

    def crossing(members: Class, level: float) -> int:
        if members not in found:
            found[members] = _largest_of(study, design, sorted(members))
        return first_crossing(found[members], level, design.looks)

    return _closed(list(_partitions(range(len(study.methods)), study.pairs)), study.pairs, design.alpha, crossing)


def _pair_by_pair(study: _Study, design: Design) -> dict[Pair, int]:
    """Each at α/pairs, and of so many that this share is more than none of them; nothing of a pair is kept."""
    level = design.alpha / len(study.pairs)
    many = replace(design, draws=max(design.draws, math.ceil(2 * design.looks / level)))
    return {pair: first_crossing(_largest_of(study, many, sorted(pair)), level, many.looks) for pair in study.pairs}


def _closed(
    partitions: Sequence[Sequence[Class]], pairs: Sequence[Pair], alpha: float, crossing: Callable[[Class, float], int]
) -> dict[Pair, int]:
    """A pair is decided when the last partition that keeps it together is refuted, by the first of its classes."""
    decided = dict.fromkeys(pairs, 0)
    known: dict[tuple[Class, float], int] = {}
    never: set[Pair] = set()
    for classes in partitions:
        total = sum(map(len, classes))
        looks = []
        for members in classes:
            key = (members, alpha * len(members) / total)
            if key not in known:
                known[key] = crossing(*key)
            looks.append(known[key])
        refuted = min((look for look in looks if look), default=0)
        for pair in pairs:
            if any(pair[0] in members and pair[1] in members for members in classes):
                decided[pair] = max(decided[pair], refuted)
                if not refuted:
                    never.add(pair)
    return {pair: 0 if pair in never else look for pair, look in decided.items()}


def _partitions(methods: Sequence[int], pairs: Sequence[Pair]) -> Iterator[list[Class]]:
    """Ways to put methods into classes that compared pairs hold together; classes of one are left out."""
    if not methods:
        yield []
        return
    first, rest = methods[0], methods[1:]
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            members = frozenset((first, *others))
            if _connected(members, pairs):
                left = [method for method in rest if method not in members]
                for classes in _partitions(left, pairs):
                    yield [members, *classes] if size else classes


def _connected(members: Class, pairs: Sequence[Pair]) -> bool:
    reached = {min(members)}
    while True:
        more = {other for pair in pairs if set(pair) & reached and set(pair) <= members for other in pair}
        if more <= reached:
            return reached == members
        reached |= more


def _largest_of(study: _Study, design: Design, members: Sequence[int]) -> Array:
    inside = [
        (first, second)
        for first, second in combinations(range(len(members)), 2)
        if (members[first], members[second]) in study.compared
    ]
    return largest_differences(study.groups(members, design.group), len(members), inside, design)


def largest_differences(groups: Array, members: int, pairs: Sequence[Pair], design: Design) -> Array:
    """M_k(σ) [σ, looks] of scores [looks, tasks, members·n] in one class; the first σ leaves them as they are."""
    looks, tasks, together = groups.shape
    group, scales = together // members, _spreads(groups, design)
    groups = groups - groups[:1, :, :1]  # differences of large numbers keep their digits
    sums, rows = np.zeros(0), []
    running: dict[int, Array] = {}
    for look in range(looks):
        for task in range(tasks):
            dealing = dealings(members, group, design.looks * tasks, look * tasks + task, design.draws, design.seed)
            sums = groups[look, task][dealing].reshape(members, group, -1).sum(1)
            running[task] = running[task] + sums if look else sums
        means = sum(running[task] / scales[look, task] for task in range(tasks)) / (tasks * (look + 1) * group)
        rows.append(_largest(np.asarray(means), pairs))
    return np.stack(rows, -1) if rows else np.zeros((0, 0))


def _largest(means: Array, pairs: Sequence[Pair]) -> Array:
    """Largest |difference| among pairs, of means [members, σ]."""
    members = len(means)
    if len(pairs) == members * (members - 1) // 2:
        return np.asarray(means.max(0) - means.min(0))
    return np.asarray(np.max([np.abs(means[a] - means[b]) for a, b in pairs], axis=0))


def _spreads(groups: Array, design: Design) -> Array:
    """What each task is divided by at each look [looks, tasks]; dealing the seeds otherwise does not change it."""
    if not design.by_spread:
        return np.ones(groups.shape[:2])
    looks, tasks = groups.shape[:2]
    spreads = [spread(groups[: look + 1, task]) for look in range(looks) for task in range(tasks)]
    return np.array(spreads).reshape(looks, tasks)


def spread(scores: Array) -> float:
    """Their standard deviation; 1 where they are all alike, but for rounding, which no scale may blow up."""
    deviation = float(scores.std())
    return deviation if deviation > 1e-13 * float(np.abs(scores).max()) else 1.0


def first_crossing(largest: Array, level: float, looks: int) -> int:
    """The look at which the actual seeds, the first of σ in [σ, looks so far], cross; 0 if they did not."""
    crossed = np.zeros(len(largest), bool)
    for look in range(largest.shape[1]):
        budget = math.floor(level * (look + 1) / looks * len(largest) + 1e-9) - int(crossed.sum())
        crossed |= largest[:, look] > _boundary(largest[~crossed, look], budget)
        if crossed[0]:
            return look + 1
    return 0


def _boundary(values: Array, budget: int) -> float:
    """Between two of these values, with at most `budget` of them above; equal values stay together."""
    if budget < 1:
        return math.inf
    top = -np.sort(-values)[: budget + 1]
    apart = np.flatnonzero(top[:-1] - top[1:] > 1e-9 * max(float(np.abs(top).max()), 1e-300))
    return float(top[apart[-1]] + top[apart[-1] + 1]) / 2 if len(apart) else math.inf


@lru_cache(maxsize=2048)
def dealings(
    members: int, group: int, positions: int, position: int, draws: int, seed: int
) -> NDArray[np.unsignedinteger]:
    """Ways to deal members·n seeds out again [members·n, σ] at one of the positions (look and task) of a design, the
    first of which changes nothing: all that there are over all positions, or as many as are drawn."""
    together = members * group
    kind = np.min_scalar_type(together)
    ways = math.factorial(together) // math.factorial(group) ** members
    if ways**positions <= draws:
        every = np.array(list(_every_dealing(tuple(range(together)), group)), kind)
        return np.ascontiguousarray(every[np.arange(ways**positions) // ways**position % ways].T)
    rng = np.random.default_rng([seed, members, group, position])
    drawn = rng.random((draws, together)).argsort(1).astype(kind)
    drawn[0] = np.arange(together)
    return np.ascontiguousarray(drawn.T)


def _every_dealing(left: tuple[int, ...], group: int) -> Iterator[tuple[int, ...]]:
    if not left:
        yield ()
        return
    for mine in combinations(left, group):
        others = tuple(one for one in left if one not in mine)
        for rest in _every_dealing(others, group):
            yield (*mine, *rest)


def _arrays(scores: Scores) -> list[list[Array]]:
    if len(scores) < 2:
        raise DataError("scores", "nothing to compare", got=f"{len(scores)} methods", expected="two or more")
    tasks = list(next(iter(scores.values())))
    rows = []
    for method, row in scores.items():
        if not tasks or set(row) != set(tasks):
            got = f"{', '.join(row) or 'none'} of '{method}'"
            raise DataError("scores", "methods are compared on the same tasks", got=got, expected=", ".join(tasks))
        rows.append([seed_scores(row[task], f"scores of '{method}' on '{task}'") for task in tasks])
    return rows


def _numbered(pairs: Sequence[tuple[str, str]], methods: Sequence[str]) -> list[Pair]:
    if not pairs:
        return list(combinations(range(len(methods)), 2))
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        if name not in methods:
            raise ConfigError("pairs", f"no method '{name}'", do=did_you_mean(name, methods))
    numbered = [(methods.index(a), methods.index(b)) for a, b in pairs]
    if any(a == b for a, b in numbered) or len(set(map(frozenset, numbered))) < len(numbered):
        raise ConfigError("pairs", "each pair is two methods, and named once", got=list(pairs))
    return numbered
