"""Physics: do stored steps follow from each other in this environment, and if not as they are, then how?

Each step is replayed from its stored observation, once per *reading* of the actions: as recorded, as if recorded in
[-1, 1], clipped to the bounds, and if none of these repeats the data, as if recorded in the symmetric range that fits
best. The reading that repeats the data is what the data mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.spec import Box
from understudy.envs.physics.action_range import fitted_range, mapped
from understudy.envs.physics.poses import Floats
from understudy.envs.physics.stepping import Predictions, Stepper

Name = Literal["recorded", "unit", "clipped", "scaled"]
Grade = Literal["exact", "close", "different"]

TOLERANCE = 1e-5
"""Relative to the size of the observations; nine of ten rows must keep it.

States rounded to float32 step to within 2.5e-6 (90 %) in every environment here, double-precision ones to 1e-12,
and another action scale, model or simulator version shows from 1e-3 on. One bound therefore serves both precisions:
1e-9 for float64 would only refuse files whose actions, or an unconverged contact solver, are less precise than that.
"""
CLOSE = 0.05
"""The same physics in another version of a simulator is off by 1 % of a step, the wrong action scale by 20 %."""
MUCH = 10.0
"""A reading overrules the plain one when its error is this many times smaller."""
BROKEN = 100.0
"""So many tolerances off, a step does not follow where others repeat: of clean files one row in a thousand, at most."""
FAR = 0.1 / TOLERANCE
"""The same where steps are only close: off by a tenth of all there is."""
REPEATING = 0.1
"""Where this share of the moving steps repeats exactly, the environment is the right one, and what does not is wrong.

No step of another simulator version, model or gravity does, but for those of a walker that touches nothing.
"""


@dataclass(frozen=True)
class Steps:
    """Stored steps [N] in any order, each with everything that is needed to repeat it."""

    observations: NDArray[Any]
    actions: NDArray[Any]
    next_observations: NDArray[Any]
    rewards: NDArray[Any] | None = None
    following_rewards: NDArray[Any] | None = None
    """The reward of the row after, NaN after the last row of an episode: what a late reward is compared with."""
    terminated: NDArray[Any] | None = None
    previous_rewards: NDArray[Any] | None = None
    """The reward of the row before, NaN at the first row of an episode: what an early one is compared with."""

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in vars(self).items() if column is not None}
        if len(set(lengths.values())) > 1:
            raise DataError("replay", "columns of different lengths", got=lengths)
        if self.observations.shape != self.next_observations.shape:
            shapes = f"{self.observations.shape} and {self.next_observations.shape}"
            raise DataError("replay", "observations and next observations differ in shape", got=shapes)

    def take(self, rows: NDArray[np.intp]) -> "Steps":
        return Steps(**{name: column[rows] for name, column in vars(self).items() if column is not None})


def following(rewards: NDArray[Any], episode: NDArray[Any]) -> Floats:
    """Of consecutive rows [N], the reward of the next row of the same episode, NaN where there is none -> [N]."""
    late = np.full(len(rewards), np.nan)
    goes_on = np.flatnonzero(episode[1:] == episode[:-1])
    late[goes_on] = rewards[goes_on + 1]
    return late


def sample_rows(rows: int, terminals: NDArray[np.integer[Any]], limit: int = 500) -> NDArray[np.intp]:
    """At most `limit` of `rows` rows, always the same ones, a quarter of them terminal where there are so many."""
    rng = np.random.default_rng(0)
    ends = rng.permutation(np.asarray(terminals, dtype=np.intp))[: limit // 4]
    anywhere = rng.choice(rows, size=min(rows, limit - len(ends)), replace=False)
    return np.union1d(ends, anywhere).astype(np.intp)


@dataclass(frozen=True)
class Errors:
    """Quantiles of absolute errors."""

    rows: int
    median: float
    most: float
    """90 %"""
    nearly_all: float
    """99 %"""
    worst: float


@dataclass(frozen=True)
class Reading:
    """How far the environment ends up from the data when the actions are read in one way.

    An observation's error is that of its worst column. Absent rewards were not stored, or cannot be predicted.
    """

    observation: Errors
    reward: Errors | None
    late_reward: Errors | None


@dataclass(frozen=True)
class Terminals:
    """Stored ends against the environment's own."""

    confirmed: int
    denied: int
    """Stored as terminal where the environment goes on: a time limit, most likely."""
    missed: int
    """The environment ends where the data go on."""
    denied_rows: tuple[int, ...] = ()
    """Which of the given steps are denied."""
    missed_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Physics:
    """The result of a replay."""

    env_id: str
    rows: int
    replayed: int
    """Rows whose observation holds the whole state: velocities cut off at ±10 (Hopper, Walker2d) do not."""
    tolerance: float
    step: float
    """How far an observation typically moves in one step, to judge errors by."""
    readings: Mapping[Name, Reading]
    actions: Name
    """The reading that explains the data best, which is not to say well: see `grade`."""
    reach: float | None
    """Actions were recorded in [-reach, reach]; absent: in the environment's own units."""
    grade: Grade
    cutting: Grade | None
    """How well the steps repeat whose actions lie outside the bounds, once cut to them; absent: there is none."""
    rewards: Literal["recorded", "late", "different", "unknown"]
    terminals: Terminals | None
    breaks: tuple[int, ...]
    """Which of the given steps do not follow where others do."""
    limit: float
    """How far off a step must be to be one of them."""
    columns: tuple[float, ...]
    """Median error of each observation column under the best reading."""

    @property
    def best(self) -> Reading:
        return self.readings[self.actions]


def compare_physics(stepper: Stepper, steps: Steps) -> Physics | None:
    """Replay all steps under every reading of their actions. None: no row holds a whole state."""
    if not len(steps.observations):
        return None
    played = {name: _play(stepper, steps, actions) for name, actions in _readings(stepper, steps)}
    replayed = played["recorded"].replayed
    if not replayed.any():
        return None
    scale = _Scale.of(steps, stepper.columns)
    readings = {name: _reading(steps, made) for name, made in played.items() if made.replayed.any()}
    best: Name = "recorded"
    for name, reading in readings.items():
        if _explains_better(reading, readings[best], scale):
            best = name
    grade = _grade(readings[best].observation, scale.tolerance, scale.step)
    reach = 1.0 if best == "unit" else None
    if grade != "exact" and (fitted := _fitted(stepper, steps)) is not None:
        again = _play(stepper, steps, mapped(_flat(steps.actions), fitted, _box(stepper)))
        reading = _reading(steps, again) if again.replayed.any() else readings[best]
        fit = _grade(reading.observation, scale.tolerance, scale.step)
        if fit != "different" and _explains_better(reading, readings[best], scale):
            played["scaled"], readings["scaled"] = again, reading
            best, grade, reach = "scaled", fit, fitted
    known = grade in {"exact", "close"}
    limit = scale.tolerance * (BROKEN if _repeats(steps, played[best], scale) else FAR if known else np.inf)
    breaks = _breaks(steps, played[best], limit)
    return Physics(
        env_id=stepper.env_id,
        rows=len(steps.observations),
        replayed=int(replayed.sum()),
        tolerance=scale.tolerance,
        step=scale.step,
        readings=readings,
        actions=best,
        reach=reach,
        grade=grade,
        cutting=_cutting(stepper, steps, played.get("clipped"), scale),
        rewards=_judge_rewards(readings[best], scale) if known else "unknown",
        terminals=_terminals(stepper, steps, played[best]) if known else None,
        breaks=breaks,
        limit=limit,
        columns=_columns(steps, played[best]),
    )


@dataclass(frozen=True)
class _Scale:
    """What is large and small in this data."""

    tolerance: float
    step: float
    reward_tolerance: float
    reward_spread: float

    @classmethod
    def of(cls, steps: Steps, columns: int) -> "_Scale":
        before, after = (_wide(part)[:, :columns] for part in (steps.observations, steps.next_observations))
        rewards = _wide(steps.rewards) if steps.rewards is not None else np.zeros(1)
        return cls(
            tolerance=TOLERANCE * max(1.0, float(np.nanmedian(np.abs(after).max(axis=1)))),
            step=float(np.nanmedian(np.abs(after - before).max(axis=1))),
            reward_tolerance=TOLERANCE * max(1.0, float(np.nanmedian(np.abs(rewards)))),
            reward_spread=float(np.nanstd(rewards)),
        )


def _wide(values: NDArray[Any]) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _readings(stepper: Stepper, steps: Steps) -> list[tuple[Name, NDArray[Any]]]:
    """The actions under every reading that differs from the recorded one."""
    readings: list[tuple[Name, NDArray[Any]]] = [("recorded", steps.actions)]
    box = stepper.action_space
    if isinstance(box, Box):
        actions = _flat(steps.actions)
        if (np.abs(box.centre) > 0).any() or (box.half_range != 1).any():
            readings.append(("unit", mapped(actions, 1.0, box)))
        clipped = np.clip(actions, box.low, box.high)
        if not np.array_equal(clipped, actions):
            readings.append(("clipped", clipped))
    return readings


def read_actions(physics: "Physics", stepper: Stepper, actions: NDArray[Any]) -> NDArray[Any]:
    """[N, A]: recorded actions as the environment gets them, in the reading that was found."""
    if physics.reach is not None:
        return mapped(_flat(actions), physics.reach, _box(stepper))
    if physics.actions == "clipped":
        box = _box(stepper)
        return np.clip(_flat(actions), box.low, box.high)
    return actions


def _flat(actions: NDArray[Any]) -> Floats:
    return _wide(actions).reshape(len(actions), -1)


def _box(stepper: Stepper) -> Box:
    assert isinstance(stepper.action_space, Box)
    return stepper.action_space


def _fitted(stepper: Stepper, steps: Steps) -> float | None:
    """The symmetric range that explains the motion, if it is another than the environment's and [-1, 1]."""
    reach = fitted_range(stepper, _wide(steps.observations), steps.actions, _wide(steps.next_observations))
    if reach is None or reach == 1:
        return None
    box = _box(stepper)
    return None if (box.centre == 0).all() and np.allclose(box.half_range, reach, rtol=1e-3) else reach


def _cutting(stepper: Stepper, steps: Steps, clipped: Predictions | None, scale: "_Scale") -> Grade | None:
    if clipped is None:
        return None
    box, actions = _box(stepper), _flat(steps.actions)
    outside = ((actions < box.low) | (actions > box.high)).any(axis=1) & clipped.replayed
    if not outside.any():
        return None
    return _grade(_errors(_off(steps, clipped)[outside].max(axis=1)), scale.tolerance, scale.step)


def _play(stepper: Stepper, steps: Steps, actions: NDArray[Any]) -> Predictions:
    """Only the columns of the state; a row whose next observation is missing counts as not replayed."""
    played = stepper.step_from(_wide(steps.observations), actions)
    stored = np.isfinite(_wide(steps.next_observations)[:, : stepper.columns]).all(axis=1)
    return replace(
        played,
        next_observations=played.next_observations[:, : stepper.columns],
        rewards=np.where(stored, played.rewards, np.nan),
        replayed=played.replayed & stored,
    )


def _reading(steps: Steps, played: Predictions) -> Reading:
    return Reading(
        _errors(_off(steps, played)[played.replayed].max(axis=1)),
        _reward_errors(steps.rewards, played),
        _reward_errors(steps.following_rewards, played),
    )


def _off(steps: Steps, played: Predictions) -> Floats:
    """How far each column of the state ends up from the stored one -> [N, columns]."""
    columns = played.next_observations.shape[1]
    return np.abs(played.next_observations - _wide(steps.next_observations)[:, :columns])


def _reward_errors(rewards: NDArray[Any] | None, played: Predictions) -> Errors | None:
    off = np.abs(played.rewards - _wide(rewards)) if rewards is not None else np.empty(0)
    return _errors(off[np.isfinite(off)]) if np.isfinite(off).any() else None


def _errors(values: Floats) -> Errors:
    median, most, nearly_all, worst = np.quantile(values, [0.5, 0.9, 0.99, 1.0])
    return Errors(len(values), float(median), float(most), float(nearly_all), float(worst))


def _explains_better(one: Reading, other: Reading, scale: _Scale) -> bool:
    """By the next observation; where those agree (a simulator that clips, itself), by the reward."""
    ours, theirs = (max(reading.observation.median, scale.tolerance) for reading in (one, other))
    if ours * MUCH < theirs or theirs * MUCH < ours:
        return ours < theirs
    return _least_reward_error(one, scale) * MUCH < _least_reward_error(other, scale)


def _least_reward_error(reading: Reading, scale: _Scale) -> float:
    known = [errors.median for errors in (reading.reward, reading.late_reward) if errors is not None]
    return max(min(known, default=0.0), scale.reward_tolerance)


def _grade(errors: Errors, tolerance: float, movement: float) -> Grade:
    if errors.most <= tolerance:
        return "exact"
    return "close" if errors.median <= CLOSE * movement else "different"


def _judge_rewards(reading: Reading, scale: _Scale) -> Literal["recorded", "late", "different", "unknown"]:
    """Late only if that explains what the plain reading does not: constant rewards are never late."""
    if reading.reward is None:
        return "unknown"
    plain, late = reading.reward, reading.late_reward
    if late is not None and max(late.median, scale.reward_tolerance) * MUCH < plain.median:
        plain_or_late: Literal["recorded", "late"] = "late"
        best = late
    else:
        plain_or_late, best = "recorded", plain
    return "different" if _grade(best, scale.reward_tolerance, scale.reward_spread) == "different" else plain_or_late


def _terminals(stepper: Stepper, steps: Steps, played: Predictions) -> Terminals | None:
    """By the step and, where the environment has a rule for that, by the observation that is stored after it.

    Where the two disagree, the data have the last word: a wrong observation is not a wrong end.
    """
    if steps.terminated is None:
        return None
    stored, ends, seen = np.asarray(steps.terminated, dtype=bool), played.terminated, played.replayed
    over = stepper.is_over(_wide(steps.next_observations))
    if over is not None:
        shown = np.isfinite(_wide(steps.next_observations)[:, : stepper.columns]).all(axis=1)
        both = np.where(stored, ends | over, ends & over)
        ends, seen = np.where(seen & shown, both, np.where(seen, ends, over)), seen | shown
    denied, missed = stored & ~ends & seen, ~stored & ends & seen
    return Terminals(
        confirmed=int((stored & ends & seen).sum()),
        denied=int(denied.sum()),
        missed=int(missed.sum()),
        denied_rows=tuple(map(int, np.flatnonzero(denied))),
        missed_rows=tuple(map(int, np.flatnonzero(missed))),
    )


def _repeats(steps: Steps, played: Predictions, scale: _Scale) -> bool:
    """Enough steps that move repeat exactly, whatever the others do."""
    columns = played.next_observations.shape[1]
    travel = np.abs(_wide(steps.next_observations) - _wide(steps.observations))[:, :columns].max(axis=1)
    moving = played.replayed & (travel > BROKEN * scale.tolerance)
    exact = moving & (_worst(steps, played) <= scale.tolerance)
    return bool(exact.sum() >= max(3, REPEATING * moving.sum()))


def _breaks(steps: Steps, played: Predictions, limit: float) -> tuple[int, ...]:
    return tuple(map(int, np.flatnonzero(_worst(steps, played) > limit)))


def _worst(steps: Steps, played: Predictions) -> Floats:
    """[N]: the error of the worst column, 0 where nothing was replayed."""
    worst: Floats = _off(steps, played).max(axis=1, initial=0.0, where=played.replayed[:, None])
    return worst


def _columns(steps: Steps, played: Predictions) -> tuple[float, ...]:
    return tuple(map(float, np.median(_off(steps, played)[played.replayed], axis=0)))
