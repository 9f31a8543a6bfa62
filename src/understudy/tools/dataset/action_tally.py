"""What the recorded actions do with their space: bounds touched, bounds passed, choices taken."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import ActionSpace, Box, Discrete
from understudy.data.assemble import outside_box
from understudy.data.episode import Array
from understudy.tools.dataset.blocks import EpisodeBlock
from understudy.tools.dataset.column_tally import numbers_json

NEAR = 0.01
"""An action this share of the range from a bound, or beyond it, counts as saturated."""
MOST_CHOICES = 4096


@dataclass(frozen=True)
class BoxActions:
    """Continuous actions of A dimensions."""

    low: tuple[float, ...]
    """The declared bounds, or the recorded range where none is declared."""
    high: tuple[float, ...]
    declared: bool
    at_low: tuple[float, ...]
    """Share of steps at the low bound, per dimension; from a sample where the bounds are not declared."""
    at_high: tuple[float, ...]
    outside: int = 0
    """Steps with a component outside the declared bounds."""
    first_outside: tuple[int, int] | None = None
    """(episode, row)"""
    largest: float = 0.0
    """The largest |component|."""
    usual: float = 0.0
    """The 99 % quantile of |component| in the sample."""
    middle: float = 0.0
    """Its median."""


@dataclass(frozen=True)
class DiscreteActions:
    """One of some choices; `counts` holds those that occur."""

    choices: int | None
    """How many there are, where the space says so."""
    counts: Mapping[int, int]
    wrong: int = 0
    """Steps whose action is no whole number of the space."""
    first_wrong: tuple[int, int] | None = None
    wrong_value: float = 0.0
    wrong_values: tuple[float, ...] = ()
    """The first few that differ."""


Actions = BoxActions | DiscreteActions


def is_discrete(space: ActionSpace | None, actions: Array) -> bool:
    """What the space says; without one, whole numbers that come one per step are choices."""
    if space is not None:
        return isinstance(space, Discrete)
    return actions.dtype.kind in "iub" and actions.shape[1:] in ((), (1,))


def fits_space(space: ActionSpace | None, shape: tuple[int, ...]) -> bool:
    """Whether an action of this shape can be one of the space."""
    if isinstance(space, Discrete):
        return shape in ((), (1,), (space.count,))
    return space is None or shape == (space.size,) or (shape == () and space.size == 1)


class BoxTally:
    def __init__(self, space: Box | None) -> None:
        self._space = space
        self._steps = self._outside = 0
        self._first: tuple[int, int] | None = None
        self._at_low: Array = np.zeros(1)
        self._at_high: Array = np.zeros(1)

    def add(self, block: EpisodeBlock) -> None:
        if self._space is None:
            return
        actions = block.actions.reshape(len(block.actions), -1)
        outside = outside_box(actions, self._space)
        if self._first is None and outside.any():
            self._first = block.place_of_step(int(np.flatnonzero(outside)[0]))
        self._outside += int(outside.sum())
        at_low, at_high = _near(actions, np.asarray(self._space.low), np.asarray(self._space.high))
        self._at_low, self._at_high = self._at_low + at_low.sum(0), self._at_high + at_high.sum(0)
        self._steps += len(actions)

    def survey(self, low: Array, high: Array, sample: Array) -> BoxActions:
        """`low` and `high` [A] are the recorded range, `sample` [k, …] some of the actions."""
        some = sample.reshape(len(sample), -1).astype(np.float64)
        size = np.abs(some[np.isfinite(some)])
        middle, usual = np.quantile(size, [0.5, 0.99]).tolist() if len(size) else (0.0, 0.0)
        reach = np.abs(np.concatenate([low, high]))
        largest = float(reach[np.isfinite(reach)].max(initial=0.0))
        if self._space is None:
            shares = [near.mean(0) for near in _near(some, low, high)]
            bounds = low, high
        else:
            shares = [self._at_low / self._steps, self._at_high / self._steps]
            bounds = np.asarray(self._space.low), np.asarray(self._space.high)
        return BoxActions(
            tuple(bounds[0].tolist()),
            tuple(bounds[1].tolist()),
            self._space is not None,
            tuple(shares[0].tolist()),
            tuple(shares[1].tolist()),
            self._outside,
            self._first,
            largest,
            usual,
            middle,
        )


def _near(actions: Array, low: Array, high: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which components of [n, A] lie at the low and which at the high bound [n, A]."""
    slack = NEAR * (high - low)
    return actions <= low + slack, actions >= high - slack


class DiscreteTally:
    def __init__(self, space: Discrete | None) -> None:
        self._count = space.count if space is not None else None
        self._counts: Counter[int] = Counter()
        self._wrong = 0
        self._first: tuple[int, int] | None = None
        self._value = 0.0
        self._values: set[float] = set()

    def add(self, block: EpisodeBlock) -> None:
        choices, wrong = chosen(block.actions, self._count)
        if self._first is None and wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            self._first, self._value = block.place_of_step(row), float(block.actions[row].reshape(-1)[0])
        self._wrong += int(wrong.sum())
        if wrong.any() and len(self._values) < 4 and block.actions[0].size == 1:
            self._values |= set(np.unique(block.actions[wrong].astype(np.float64))[:4].tolist())
        if len(self._counts) < MOST_CHOICES:
            values, counts = np.unique(choices[~wrong], return_counts=True)
            self._counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def survey(self) -> DiscreteActions:
        counts = dict(sorted(self._counts.items())[:MOST_CHOICES])
        values = tuple(sorted(self._values))
        return DiscreteActions(self._count, counts, self._wrong, self._first, self._value, values)


def chosen(actions: Array, count: int | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The choice of each step of [n], [n, 1] or one-hot [n, K], and whether it is none [n], [n]."""
    if actions.ndim == 2 and actions.shape[1] > 1:
        wrong = ~(np.isin(actions, (0, 1)).all(1) & (actions.sum(1) == 1))
        return actions.argmax(1).astype(np.int64), wrong
    flat = actions.reshape(-1)
    small = np.abs(flat.astype(np.float64)) < 1 << 53
    whole = np.where(small, flat, -1).astype(np.int64)
    wrong = ~small | (whole != flat) | (whole < 0)
    return whole, wrong if count is None else wrong | (whole >= count)


def actions_json(actions: Actions) -> dict[str, Any]:
    if isinstance(actions, DiscreteActions):
        counts = {str(choice): count for choice, count in actions.counts.items()}
        wrong = {
            "wrong_value": numbers_json(np.array([actions.wrong_value]))[0],
            "wrong_values": numbers_json(np.array(actions.wrong_values)),
        }
        return {"kind": "discrete", **vars(actions), "counts": counts, **wrong}
    shares = {name: numbers_json(np.asarray(getattr(actions, name))) for name in ("low", "high", "at_low", "at_high")}
    return {"kind": "box", **vars(actions), **shares}
