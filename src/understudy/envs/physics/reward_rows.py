"""Rewards row by row: where the motion repeats exactly, the reward must too; what is off shows how it came about."""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from understudy.envs.physics.poses import Floats

RewardPattern = Literal["none", "late", "early", "negated", "affine", "ends", "other"]
OFF = 1e-4
"""Relative to a reward, at least to 1: where the motion repeats, clean files in single precision stay below 1e-5."""
EXPLAINED = 0.9
"""A pattern explains this share of the rows that are off, or it is not theirs."""
Flags = NDArray[np.bool_]


@final
@dataclass(frozen=True)
class RewardRows:
    """Which rewards are off, and how."""

    judged: Flags
    """[N]: rows whose motion repeats exactly and whose reward is known and can be predicted."""
    off: Flags
    """[N]"""
    predicted: Floats
    """[N]"""
    pattern: RewardPattern
    """What the rows that are off have in common: those of the row before or after, −r, a·r + b, only terminal rows."""
    factor: float = 1.0
    shift: float = 0.0
    """Of `affine`: recorded = factor × reward + shift."""


def judge_rewards(
    recorded: Floats,
    predicted: Floats,
    exact: Flags,
    following: Floats,
    previous: Floats,
    ends: Flags,
) -> RewardRows:
    """All [N]; `following` and `previous` are the recorded rewards of the rows beside, NaN where there is none.

    `ends`: rows after which the episode is over.
    """
    judged = exact & np.isfinite(recorded) & np.isfinite(predicted)
    off = judged & ~agree(recorded, predicted)
    rows = np.flatnonzero(off)
    factor, shift = fit_line(predicted[rows], recorded[rows])
    pattern: RewardPattern = "other"
    if not len(rows):
        pattern = "none"
    elif _differ(predicted[rows]) and explains(following[rows], predicted[rows]):
        pattern = "late"
    elif _differ(predicted[rows]) and explains(previous[rows], predicted[rows]):
        pattern = "early"
    elif explains(recorded[rows], -predicted[rows]):
        pattern = "negated"
    elif ends[rows].all() and off.sum() >= EXPLAINED * (judged & ends).sum() and judged.sum() > off.sum():
        pattern = "ends"
    elif len(rows) > 3 and _differ(predicted[rows]) and explains(recorded[rows], factor * predicted[rows] + shift):
        pattern = "affine"
    return RewardRows(judged, off, predicted, pattern, factor, shift)


def agree(one: Floats, other: Floats) -> Flags:
    """[N]: equal but for rounding; NaN equals nothing."""
    same: Flags = np.abs(one - other) <= OFF * np.maximum(1.0, np.maximum(np.abs(one), np.abs(other)))
    return same


def explains(values: Floats, rewards: Floats) -> bool:
    """Whether nearly all `values` [n] that are known are the `rewards`."""
    known = np.isfinite(values)
    return bool(known.any() and agree(values[known], rewards[known]).mean() >= EXPLAINED)


def fit_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope and height of the line through most points [n] (the median over pairs); 1 and 0 where there is none."""
    order = np.argsort(x, kind="stable")
    half = len(order) // 2
    low, high = order[:half], order[len(order) - half :]
    run = x[high] - x[low]
    if not half or not (run > OFF).any():
        return 1.0, 0.0
    slope = float(np.median((y[high] - y[low])[run > OFF] / run[run > OFF]))
    return slope, float(np.median(y - slope * x))


def _differ(values: Floats) -> bool:
    """Rewards that are all the same are the neighbours' too, and lie on every line."""
    return bool(np.ptp(values) > OFF * max(1.0, float(np.abs(values).max())))
