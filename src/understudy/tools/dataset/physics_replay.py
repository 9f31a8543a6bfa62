"""A sample of a recording replayed: the environment's verdict on all of it, and on the rows that stand out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from understudy.core.spec import Discrete
from understudy.data.recording import Recording
from understudy.envs.physics.agreement import Errors, Grade, Physics, Steps, compare_physics
from understudy.envs.physics.stepping import Stepper, find_stepper, replayable
from understudy.tools.dataset.physics_sample import LOST, Sample, suspected_ends
from understudy.tools.dataset.reference_env import quiet_versions
from understudy.tools.dataset.row_faults import Pattern, RowFaults, row_faults
from understudy.tools.dataset.survey import Survey

MANY = 0.02
"""From this share of breaks on, another version of the environment is tried."""


@final
@dataclass(frozen=True)
class Replay:
    """What the environment says of the sample."""

    physics: Physics
    """Judged without the steps that do not follow at all; `breaks` names those."""
    sample: Sample
    faults: RowFaults
    inner_rewards: Errors | None
    """Errors of rewards where no action touches its bounds; absent where rewards are right anyway."""
    others: Mapping[str, Grade]
    """Other versions of the environment that repeat the data better than this one."""

    def patterns(self, survey: Survey, time_limit: int | None) -> list[Pattern]:
        """What breaks, without the joints of episodes that are too long, which are told as such."""
        joints = np.concatenate([suspected_ends(survey, time_limit, lost) for lost in LOST])
        return [pattern for pattern in self.faults.patterns if not set(pattern.steps) <= set(joints.tolist())]


def replay(
    stepper: Stepper, sample: Sample, recording: Recording, survey: Survey, dropped: tuple[int, ...] = ()
) -> Replay | None:
    """The environment's verdict; None if no sampled observation holds a whole state.

    `recording` is read once more if there are steps that do not follow: they are looked at with their neighbours.
    """
    with quiet_versions():
        physics = compare_physics(stepper, sample.steps)
        if physics is None:
            return None
        physics = _without_breaks(stepper, sample.steps, physics)
        others = _others(sample.steps, physics)
        faults = row_faults(stepper, physics, sample, recording, survey, dropped)
        physics = replace(physics, breaks=faults.breaks)
        inner = _inner_rewards(stepper, sample.steps) if _rewards_are_off(physics) else None
        return Replay(physics, sample, faults, inner, others)


def _rewards_are_off(physics: Physics) -> bool:
    reward = physics.best.reward
    return physics.rewards != "late" and reward is not None and reward.most > physics.tolerance


def _without_breaks(stepper: Stepper, steps: Steps, physics: Physics) -> Physics:
    """Ends are sampled more often than others: where all of them are lost, the physics may still be exact."""
    kept = np.setdiff1d(np.arange(len(steps.observations)), physics.breaks)
    again = compare_physics(stepper, steps.take(kept)) if physics.breaks else None
    if again is None:
        return physics
    terminals = physics.terminals if physics.terminals is not None else again.terminals
    return replace(
        again,
        rows=physics.rows,
        cutting=physics.cutting,
        terminals=terminals,
        breaks=physics.breaks,
        limit=physics.limit,
    )


def _inner_rewards(stepper: Stepper, steps: Steps) -> Errors | None:
    space = stepper.action_space
    if isinstance(space, Discrete):
        return None
    actions = steps.actions.reshape(len(steps.actions), -1)
    inside = np.flatnonzero(((actions > space.low) & (actions < space.high)).all(axis=1))
    inner = compare_physics(stepper, steps.take(inside)) if 0 < len(inside) < len(actions) else None
    return inner.best.reward if inner is not None else None


def _others(steps: Steps, physics: Physics) -> dict[str, Grade]:
    """Of versions that are asked only where this one does not repeat the data."""
    if physics.grade == "exact" and len(physics.breaks) < MANY * physics.rows:
        return {}
    grades: dict[str, Grade] = {}
    for env_id in replayable(physics.env_id):
        other = find_stepper(env_id) if env_id != physics.env_id else None
        if other is not None and steps.observations.shape[1] >= other.columns:
            judged = compare_physics(other, steps)
            if judged is not None and (physics.grade != "exact" or 10 * len(judged.breaks) < len(physics.breaks)):
                grades[env_id] = judged.grade
    return grades
