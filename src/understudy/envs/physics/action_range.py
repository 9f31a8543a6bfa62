"""The range actions were recorded in, told from what they did: ±R for the bounds of the environment."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import Box
from understudy.envs.physics.poses import Floats
from understudy.envs.physics.stepping import Stepper

ROWS = 100
ROUNDS = 5
"""Motion is nearly linear in an action, so that each round leaves a small part of the error."""
ROUND = 1e-4
"""People scale by round numbers: the shortest one this near is what was meant."""


def mapped(actions: Floats, reach: float, box: Box) -> Floats:
    """[N, A]: actions of [-reach, reach] in the units of the box."""
    return box.centre + box.half_range * (actions / reach)


def fitted_range(stepper: Stepper, before: Floats, actions: NDArray[Any], after: Floats) -> float | None:
    """The R under which actions [N, A] of [-R, R] best lead from `before` to `after` [N, S]; None: there is none."""
    box = stepper.action_space
    if not isinstance(box, Box):
        return None
    wide = np.asarray(actions, np.float64).reshape(len(actions), -1)
    moving = np.flatnonzero(np.isfinite(after[:, : stepper.columns]).all(1) & np.abs(wide).any(1))
    rows = moving[np.unique(np.linspace(0, len(moving) - 1, ROWS).astype(int))] if len(moving) else moving
    reach = float(np.abs(wide[rows]).max(initial=0.0))
    if not 0 < reach < np.inf:
        return None
    still = stepper.step_from(before[rows], np.broadcast_to(box.centre, wide[rows].shape)).next_observations
    for _ in range(ROUNDS):
        moved = stepper.step_from(before[rows], mapped(wide[rows], reach, box)).next_observations
        share = _share(after[rows] - still, moved - still, stepper.columns)
        if not 0.01 < share < 100:
            return None
        reach /= share
    return _round(reach)


def _share(whole: Floats, part: Floats, columns: int) -> float:
    """How many times `part` [N, S] goes into `whole`, by the median row; NaN if nothing moves."""
    whole, part = whole[:, :columns], part[:, :columns]
    size = (part * part).sum(1)
    moving = size > 1e-12
    return float(np.median((whole * part).sum(1)[moving] / size[moving])) if moving.any() else np.nan


def _round(value: float) -> float:
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, 6))
    return next((number for number in rounded if abs(number / value - 1) < ROUND), value)
