"""What a replay says of a dataset: whether the physics agree, and what actions and rewards really mean."""

from collections.abc import Iterator

import numpy as np

from understudy.core.spec import Box
from understudy.data.surveys.action_tally import BoxActions
from understudy.data.surveys.findings import Finding
from understudy.data.surveys.survey import Survey
from understudy.envs.physics import MUCH, Errors, Physics
from understudy.run.dataset.replay_sample import Replay
from understudy.run.dataset.world import World


def replay_findings(survey: Survey, world: World, replay: Replay) -> list[Finding]:
    physics = replay.physics
    found = [*_grade(survey, replay)]
    if physics.grade != "different":
        found += [*_scale(survey, world, replay), *_rewards(survey, replay), *_breaks(survey, replay)]
    return found


def settled_kinds(replay: Replay) -> set[str]:
    """Suspicions that need no guess any more."""
    physics = replay.physics
    if physics.grade == "different":
        return set()
    kinds = {"action-scale", "declared-space"}
    if physics.actions == "unit":
        kinds.add("out-of-range")
    if physics.rewards in ("recorded", "late"):
        kinds.add("late-rewards")
    return kinds


def _where(survey: Survey) -> str:
    return f"dataset '{survey.name}'"


def _quantiles(errors: Errors) -> str:
    return f"{errors.median:.1g} (median), {errors.most:.1g} (90%), {errors.worst:.1g} (worst)"


def _grade(survey: Survey, replay: Replay) -> Iterator[Finding]:
    physics, errors = replay.physics, replay.physics.best.observation
    same = [env_id for env_id, grade in replay.others.items() if grade == "exact"]
    reward = physics.best.reward
    rewards = (
        f"; rewards by {reward.median:.1g} (median)" if reward is not None and physics.rewards == "recorded" else ""
    )
    fix = f"It repeats exactly in {' and '.join(same)}: use --env {same[0]}" if same else ""
    if physics.grade == "different" and _hardly_moves(physics):
        message = (
            f"{_where(survey)}: hardly moves, so {physics.env_id} can neither be told from it nor confirmed: replayed "
            f"steps are off by {_quantiles(errors)}, while most move {physics.step:.1g}."
        )
        yield Finding("warning", "physics", message, fix)
    elif physics.grade == "different":
        message = (
            f"{_where(survey)}: does not match {physics.env_id}: stepped from {physics.replayed:,} stored states, it "
            f"ends up {errors.median:.2g} away from what was recorded (median), while a step moves {physics.step:.2g}."
        )
        told = fix or "Is it the right environment? Were observations normalised or filtered when they were recorded?"
        yield Finding("error", "physics", message, told)
    elif physics.grade == "close":
        message = (
            f"{_where(survey)}: is close to {physics.env_id}, not equal: probably another simulator version. Replayed "
            f"steps are off by {_quantiles(errors)}, {errors.median / max(physics.step, 1e-12):.1%} of a step."
        )
        yield Finding("warning", "physics", message, fix)
    else:
        message = (
            f"{_where(survey)}: repeats in {physics.env_id}: {physics.replayed:,} of {physics.rows:,} sampled steps "
            f"replayed, off by {_quantiles(errors)}{rewards}."
        )
        yield Finding("note", "physics", message)


def _hardly_moves(physics: Physics) -> bool:
    """Most steps stay within 0.2 % of the observations' size, and so do the errors: contacts decide, not the model."""
    return max(physics.step, physics.best.observation.median) < 200 * physics.tolerance


def _scale(survey: Survey, world: World, replay: Replay) -> Iterator[Finding]:
    physics, actions = replay.physics, survey.actions
    if physics.actions != "unit" or not isinstance(actions, BoxActions) or not isinstance(world.spec.action, Box):
        return
    plain, unit = physics.readings["recorded"], physics.readings["unit"]
    message = (
        f"{_where(survey)}: actions were recorded in [-1, 1], and {physics.env_id} takes {_bounds(world.spec.action)}: "
        f"read so, its steps repeat to {unit.observation.median:.1g} (median); as they are, to "
        f"{plain.observation.median:.1g}."
    )
    yield Finding("error", "action-scale", message, "actions_from=[-1, 1]")
    if replay.sample.outside_unit:
        outside = replay.sample.outside_unit
        message = (
            f"{_where(survey)}: {outside:,} of {survey.steps:,} actions ({outside / survey.steps:.1%}) lie outside the "
            f"range they were recorded in: got up to {actions.largest:,.6g}, expected [-1, 1]."
        )
        yield Finding("error", "out-of-range", message, "actions=clip")


def _bounds(box: Box) -> str:
    if len(set(box.low)) == len(set(box.high)) == 1:
        return f"[{box.low[0]:g}, {box.high[0]:g}]"
    return f"up to {max(map(abs, (*box.low, *box.high))):g}, by dimension"


def _rewards(survey: Survey, replay: Replay) -> Iterator[Finding]:
    physics, reading = replay.physics, replay.physics.best
    if reading.reward is None:
        return
    if physics.rewards == "late" and reading.late_reward is not None:
        message = (
            f"{_where(survey)}: rewards are late by one row: those of {physics.env_id} agree with the next row's to "
            f"{reading.late_reward.median:.1g} (median), with the own row's to {reading.reward.median:.1g}."
        )
        yield Finding("error", "late-rewards", message, "late_rewards=true")
    elif _cut_after_rewarding(replay):
        message = (
            f"{_where(survey)}: rewards agree with {physics.env_id} except where actions lie at their bounds (off by "
            f"{reading.reward.median:.1g}, median): actions were cut after they had been rewarded. The motion "
            "is the same."
        )
        yield Finding("warning" if physics.rewards == "different" else "note", "rewards", message)
    elif physics.rewards == "different":
        message = (
            f"{_where(survey)}: rewards are not those of {physics.env_id}: off by {_quantiles(reading.reward)}, though "
            "the motion agrees. Returns do not compare with the environment's."
        )
        yield Finding(
            "warning", "rewards", message, "Another version, or a reward of one's own? Learning takes what is recorded."
        )


def _cut_after_rewarding(replay: Replay) -> bool:
    """Rewards are right where no action touches its bounds, and not elsewhere: the cost was that of larger actions."""
    whole, inner = replay.physics.best.reward, replay.inner_rewards
    return whole is not None and inner is not None and MUCH * max(inner.most, replay.physics.tolerance) < whole.most


def _breaks(survey: Survey, replay: Replay) -> Iterator[Finding]:
    breaks = np.asarray(replay.physics.breaks, np.int64)
    if not len(breaks):
        return
    steps = replay.sample.numbers[breaks]
    last = np.cumsum(survey.lengths) - 1
    episode = int(np.searchsorted(last, steps[0]))
    row = int(steps[0] - (last[episode] - survey.lengths[episode] + 1))
    ends = int(np.isin(steps, last).sum())
    told = f"; {ends:,} are the last of their episode" if ends else ""
    message = (
        f"{_where(survey)}: {len(breaks):,} of {replay.physics.replayed + len(breaks):,} replayed steps do not lead to "
        f"the observation stored after them{told}. The first: episode {survey.numbers[episode]}, row {row}."
    )
    fix = (
        "Are boundaries right? Where final observations are lost, leave `next_observations` out: they count as unknown."
    )
    yield Finding("warning", "breaks", message, fix)


def clips_itself(physics: Physics) -> bool:
    """The environment cuts actions to its bounds: cutting them in the data changes no motion."""
    if physics.grade == "different" or "clipped" not in physics.readings:
        return False
    return physics.readings["clipped"].observation.median <= max(
        physics.best.observation.median * 10, physics.tolerance
    )
