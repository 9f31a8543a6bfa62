"""Steps that do not follow, and why: an action, an observation, a boundary, or a whole episode of another world.

Each is looked at with its neighbours. What makes the replay agree again is what was wrong: another action, the next
row's action, the observation that the step before leads to. Where nothing does, the place tells: the last step of an
episode has a final observation that is not its own, a whole episode that never follows is of another world, and what
is left inside an episode is a boundary that was lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import Box
from understudy.envs.physics.poses import Floats
from understudy.envs.physics.stepping import Stepper

Cause = Literal[
    "rounding",
    "negated action",
    "late action",
    "early action",
    "other action",
    "repeated observation",
    "swapped observations",
    "observation",
    "degrees",
    "final",
    "boundary",
    "episode",
]
REACH = 6
"""So many rows before and after a break are looked at."""
ELSEWHERE = 6
"""And so many others of its episode."""
WHOLE = 6
"""An episode never follows if so many of its rows were replayed and none did."""
ROUNDS = 6
SHAKES = 6
SHAKEN = 1e-6
"""Relative: a step that lands elsewhere from a state so near says nothing; it may be rounding (a contact, a limit)."""
MOSTLY = 0.8
SELDOM = 0.15
"""In another world a step may follow now and then (a pendulum that hangs)."""
MOST_CHOICES = 32
Read = Callable[[NDArray[Any]], NDArray[Any]]


@final
@dataclass(frozen=True)
class Window:
    """L consecutive rows of one episode around a break, and some others of it."""

    observations: Floats
    """[L+1, S]; the last is NaN where it is unknown."""
    actions: NDArray[Any]
    """[L, A] or [L]"""
    at: int
    """The row that does not follow."""
    last: bool
    """It is the last of its episode."""
    others: tuple[Floats, NDArray[Any], Floats]
    """Observations, actions and next observations of rows elsewhere in the episode."""


@final
@dataclass(frozen=True)
class Diagnosis:
    cause: Cause
    columns: tuple[int, ...] = ()
    """Of a wrong observation: the columns that are off, if not nearly all."""


@dataclass
class _Case:
    """What is known of one window."""

    window: Window
    broken: NDArray[np.bool_]
    """[L]"""
    known: NDArray[np.bool_]
    """[L]: the row could be replayed."""
    found: Diagnosis | None = None


def diagnose_breaks(
    stepper: Stepper, windows: Sequence[Window], read: Read, limit: float, *, exact: bool = True
) -> list[Diagnosis]:
    """The likeliest cause of each. `read` makes recorded actions the environment's, `limit` is the error allowed.

    Where steps are not `exact` anyway, nothing is tried, and only the place of a break tells what it is.
    """
    replayer = _Replayer(stepper, read, limit)
    cases = [_case(replayer, window) for window in windows]
    tried = (_observations, _shifted, _negated, _degrees, _other_action) if exact else ()
    for test in (_rounding, *tried, _place):
        left = [case for case in cases if case.found is None]
        if left:
            test(replayer, left)
    return [case.found or Diagnosis("boundary") for case in cases]


@dataclass(frozen=True)
class _Replayer:
    stepper: Stepper
    read: Read
    limit: float

    def predict(self, before: Floats, actions: NDArray[Any], *, raw: bool = False) -> Floats:
        """[N, columns], NaN where it cannot be known."""
        given = actions if raw else self.read(actions)
        return self.stepper.step_from(before, given).next_observations[:, : self.stepper.columns]

    def off(self, before: Floats, actions: NDArray[Any], after: Floats, *, raw: bool = False) -> Floats:
        """[N]: the error of the worst column; NaN where it cannot be known."""
        if not len(before):
            return np.zeros(0)
        columns = self.stepper.columns
        worst: Floats = np.abs(self.predict(before, actions, raw=raw) - after[:, :columns]).max(axis=1)
        return worst


def _case(replayer: _Replayer, window: Window) -> _Case:
    off = replayer.off(window.observations[:-1], window.actions, window.observations[1:])
    return _Case(window, off > replayer.limit, np.isfinite(off))


def _stacked(cases: Sequence[_Case]) -> tuple[Floats, NDArray[Any], Floats]:
    """The rows that break: observation, action, next observation."""
    before = np.stack([case.window.observations[case.window.at] for case in cases])
    actions = np.stack([case.window.actions[case.window.at] for case in cases])
    after = np.stack([case.window.observations[case.window.at + 1] for case in cases])
    return before, actions, after


def _rounding(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    before, actions, after = _stacked(cases)
    rng = np.random.default_rng(0)
    plain = replayer.predict(before, actions)
    off = np.abs(plain - after[:, : plain.shape[1]]).max(axis=1)
    moved = np.zeros(len(cases))
    for _ in range(SHAKES):
        shaken = before + SHAKEN * np.maximum(1.0, np.abs(before)) * rng.uniform(-1, 1, before.shape)
        moved = np.fmax(moved, np.abs(replayer.predict(shaken, actions) - plain).max(axis=1))
    for case, doubt in zip(cases, moved > 0.1 * off, strict=True):
        if doubt:
            case.found = Diagnosis("rounding")


def _run(case: _Case) -> tuple[int, int]:
    """First and last of the broken rows that follow each other around the break."""
    first = last = case.window.at
    while first > 0 and case.broken[first - 1]:
        first -= 1
    while last + 1 < len(case.broken) and case.broken[last + 1]:
        last += 1
    return first, last


def _observations(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    """From the last right observation the recorded actions lead to the next right one: those between are wrong."""
    for case in cases:
        window, (first, last) = case.window, _run(case)
        if last == first:
            if window.at + 1 == len(window.actions) and window.last and _repeats(window, window.at + 1):
                case.found = Diagnosis("repeated observation")
            continue
        state = window.observations[first]
        seen = []
        for row in range(first, last + 1):
            state = np.concatenate(
                [replayer.predict(state[None], window.actions[row : row + 1])[0], state[replayer.stepper.columns :]]
            )
            seen.append(state[: replayer.stepper.columns])
        columns = replayer.stepper.columns
        if not np.abs(seen[-1] - window.observations[last + 1, :columns]).max() <= 3 * replayer.limit:
            continue
        wrong = list(range(first + 1, last + 1))
        truth = np.stack(seen[:-1])
        stored = window.observations[wrong][:, :columns]
        if any(_repeats(window, row) for row in wrong):
            case.found = Diagnosis("repeated observation")
        elif len(wrong) == 2 and np.abs(stored[::-1] - truth).max() <= replayer.limit:
            case.found = Diagnosis("swapped observations")
        else:
            off = (np.abs(stored - truth) > replayer.limit).any(axis=0)
            few = tuple(np.flatnonzero(off).tolist()) if off.sum() <= columns / 2 else ()
            case.found = Diagnosis("observation", few)


def _repeats(window: Window, row: int) -> bool:
    """An observation that is the one before, to the bit."""
    return row > 0 and bool(np.array_equal(window.observations[row], window.observations[row - 1]))


def _shifted(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    """Actions that stand a row too late or too early.

    One of two choices is often the neighbour's by chance: there, nearly all breaks must be explained this way.
    """
    choices = not isinstance(replayer.stepper.action_space, Box)
    shifts: tuple[tuple[Cause, int], ...] = (("late action", 1), ("early action", -1))
    for cause, by in shifts:
        explained, tried = [], 0
        for case in cases:
            if case.found is not None:
                continue
            window = case.window
            rows = np.flatnonzero(case.broken)
            rows = rows[(rows + by >= 0) & (rows + by < len(window.actions))]
            off = replayer.off(window.observations[rows], window.actions[rows + by], window.observations[rows + 1])
            good, tried = off <= replayer.limit, tried + len(rows)
            if good.sum() > 1 and good.mean() >= 0.5:
                explained.append((case, int(good.sum()), len(rows)))
        if choices and sum(good for _, good, _ in explained) < MOSTLY * tried:
            continue
        for case, _, _ in explained:
            case.found = Diagnosis(cause)


def _negated(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    if not isinstance(replayer.stepper.action_space, Box):
        return
    before, actions, after = _stacked(cases)
    for case, good in zip(cases, replayer.off(before, -actions, after) <= replayer.limit, strict=True):
        if good:
            case.found = Diagnosis("negated action")


def _degrees(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    """One column in degrees instead of radians: read as radians, the step follows."""
    before, actions, after = _stacked(cases)
    for column in range(replayer.stepper.columns):
        left = [number for number, case in enumerate(cases) if case.found is None]
        if not left:
            return
        first, second = before[left].copy(), after[left].copy()
        first[:, column], second[:, column] = np.deg2rad(first[:, column]), np.deg2rad(second[:, column])
        off = replayer.off(first, actions[left], second)
        still = np.abs(second - first)[:, : replayer.stepper.columns].max(axis=1) <= replayer.limit
        for number, good in zip(left, (off <= replayer.limit) & ~still, strict=True):
            if good:
                cases[number].found = Diagnosis("degrees", (column,))


def _other_action(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    """Some action of the space leads where the step led."""
    before, actions, after = _stacked(cases)
    space = replayer.stepper.action_space
    if isinstance(space, Box):
        good = fitted_actions(replayer.stepper, before, replayer.read(actions), after) <= replayer.limit
    else:
        offs = [
            replayer.off(before, np.full(len(cases), choice), after, raw=True)
            for choice in range(min(space.count, MOST_CHOICES))
        ]
        good = np.fmin.reduce(offs) <= replayer.limit
    for case, fits, never in zip(cases, good, _whole(replayer, cases), strict=True):
        if fits and not (never and not _all_of_other_actions(replayer, case)):
            case.found = Diagnosis("other action")


def _all_of_other_actions(replayer: _Replayer, case: _Case) -> bool:
    """Where no row follows, some action explains them all: one alone may do so by chance, in another world."""
    window, rows, space = case.window, np.flatnonzero(case.broken), replayer.stepper.action_space
    before, after = window.observations[rows], window.observations[rows + 1]
    if isinstance(space, Box):
        best = fitted_actions(replayer.stepper, before, replayer.read(window.actions[rows]), after)
    else:
        tries = range(min(space.count, MOST_CHOICES))
        best = np.fmin.reduce([replayer.off(before, np.full(len(rows), one), after, raw=True) for one in tries])
    return bool((best <= replayer.limit).mean() >= MOSTLY)


def fitted_actions(stepper: Stepper, before: Floats, actions: NDArray[Any], after: Floats) -> Floats:
    """[N]: how far from `after` [N, S] the best action found leads; Gauss and Newton's method from the recorded one."""
    space, columns = stepper.action_space, stepper.columns
    assert isinstance(space, Box)
    count, size = len(before), space.size
    guess = np.clip(np.asarray(actions, np.float64).reshape(count, size), space.low, space.high)
    best = np.full(count, np.inf)
    nudge = 1e-3 * space.half_range
    for _ in range(ROUNDS):
        inward = np.where(guess + nudge > space.high, -nudge, nudge)
        tries = np.concatenate([guess[:, None], guess[:, None] + np.eye(size) * inward[:, None]], axis=1)
        states = np.repeat(before, size + 1, axis=0)
        led = stepper.step_from(states, tries.reshape(-1, size)).next_observations[:, :columns]
        led = led.reshape(count, size + 1, columns)
        left = after[:, :columns] - led[:, 0]
        best = np.fmin(best, np.abs(left).max(axis=1))
        slopes = (led[:, 1:] - led[:, :1]) / inward[:, :, None]
        usable = np.isfinite(left).all(axis=1) & np.isfinite(slopes).all(axis=(1, 2))
        steps = np.zeros_like(guess)
        for row in np.flatnonzero(usable):
            steps[row] = np.linalg.lstsq(slopes[row].T, left[row], rcond=1e-9)[0]
        guess = np.clip(guess + steps, space.low, space.high)
    return best


def _whole(replayer: _Replayer, cases: Sequence[_Case]) -> list[bool]:
    """Whether hardly any row of a break's episode follows."""
    never = []
    for case in cases:
        off = replayer.off(*case.window.others)
        seen = int(case.known.sum() + np.isfinite(off).sum())
        follow = int((case.known & ~case.broken).sum() + (off <= replayer.limit).sum())
        never.append(seen >= WHOLE and follow <= SELDOM * seen)
    return never


def _place(replayer: _Replayer, cases: Sequence[_Case]) -> None:
    for case, never in zip(cases, _whole(replayer, cases), strict=True):
        first, last = _run(case)
        if never:
            case.found = Diagnosis("episode")
        elif last == first:
            case.found = Diagnosis("final" if case.window.last else "boundary")
        else:
            case.found = Diagnosis("observation", _common(replayer, case))


def _common(replayer: _Replayer, case: _Case) -> tuple[int, ...]:
    """The columns that are off in the row of a run with the fewest of them, if not nearly all."""
    window, columns = case.window, replayer.stepper.columns
    rows = np.flatnonzero(case.broken)
    led = replayer.predict(window.observations[rows], window.actions[rows])
    off = np.abs(led - window.observations[rows + 1, :columns]) > replayer.limit
    fewest = off[off.sum(axis=1).argmin()]
    return tuple(np.flatnonzero(fewest).tolist()) if fewest.sum() <= columns / 2 else ()
