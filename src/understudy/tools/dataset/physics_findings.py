"""What a replay says of a dataset: whether the physics agree, and what actions and rewards really mean."""

from collections.abc import Iterator
from dataclasses import replace

from understudy.core.spec import Box
from understudy.core.wording import counted
from understudy.envs.physics.agreement import Errors, Physics
from understudy.tools.dataset.action_tally import BoxActions
from understudy.tools.dataset.findings import Finding, locate
from understudy.tools.dataset.physics_replay import Replay
from understudy.tools.dataset.reference_env import World
from understudy.tools.dataset.row_findings import break_findings, reward_findings
from understudy.tools.dataset.survey import Survey


def replay_findings(survey: Survey, world: World, replay: Replay) -> list[Finding]:
    physics = replay.physics
    found = [*_grade(survey, replay)]
    if physics.grade != "different":
        found += [*_scale(survey, world, replay), *reward_findings(survey, replay)]
    silent = _repeating_elsewhere(replay) or (physics.grade == "different" and hardly_moves(physics))
    return found if silent else [*found, *break_findings(survey, world, replay)]


def _repeating_elsewhere(replay: Replay) -> list[str]:
    """Versions of the environment that the data are of, if they are not of this one."""
    return [env_id for env_id, grade in replay.others.items() if grade == "exact"]


def settled_kinds(replay: Replay) -> set[str]:
    """Suspicions that need no guess any more."""
    physics = replay.physics
    if physics.grade == "different":
        return set()
    kinds = {"action-scale", "declared-space"}
    if physics.reach is not None:
        kinds.add("out-of-range")
    if physics.rewards in ("recorded", "late"):
        kinds.add("late-rewards")
    return kinds


def _quantiles(errors: Errors) -> str:
    return f"{errors.median:.1g} (median), {errors.most:.1g} (90%), {errors.worst:.1g} (worst)"


def _grade(survey: Survey, replay: Replay) -> Iterator[Finding]:
    physics, errors = replay.physics, replay.physics.best.observation
    same = _repeating_elsewhere(replay)
    reward = physics.best.reward
    rewards = (
        f"; rewards by {reward.median:.1g} (median)" if reward is not None and physics.rewards == "recorded" else ""
    )
    fix = f"It repeats exactly in {' and '.join(same)}: use --env {same[0]}" if same else ""
    if physics.grade == "different" and hardly_moves(physics):
        message = (
            f"{locate(survey)}: hardly moves, so {physics.env_id} can neither be told from it nor confirmed: replayed "
            f"steps are off by {_quantiles(errors)}, while most move {physics.step:.1g}."
        )
        yield Finding("warning", "physics", message, fix)
    elif physics.grade == "different":
        message = (
            f"{locate(survey)}: does not match {physics.env_id}: stepped from "
            f"{counted(physics.replayed, 'stored state')}, it ends up {errors.median:.2g} away from what was recorded "
            f"(median), while a step moves {physics.step:.2g}."
        )
        told = fix or "Is it the right environment? Were observations normalised or filtered when they were recorded?"
        yield Finding("error", "physics", message, told)
    elif physics.grade == "close" or same:
        message = (
            f"{locate(survey)}: is close to {physics.env_id}, not equal: probably another simulator version. Replayed "
            f"steps are off by {_quantiles(errors)}, {errors.median / max(physics.step, 1e-12):.1%} of a step."
        )
        yield Finding("warning", "physics", message, fix)
    else:
        message = (
            f"{locate(survey)}: repeats in {physics.env_id}: {physics.replayed:,} of "
            f"{counted(physics.rows, 'sampled step')} replayed, off by {_quantiles(errors)}{rewards}."
        )
        yield Finding("note", "physics", message)


def hardly_moves(physics: Physics) -> bool:
    """Most steps stay within 0.2 % of the observations' size, and so do the errors: contacts decide, not the model."""
    return max(physics.step, physics.best.observation.median) < 200 * physics.tolerance


def _scale(survey: Survey, world: World, replay: Replay) -> Iterator[Finding]:
    physics, actions, reach = replay.physics, survey.actions, replay.physics.reach
    if reach is None or not isinstance(actions, BoxActions) or not isinstance(world.spec.action, Box):
        return
    range_ = f"[{-reach:g}, {reach:g}]"
    message = (
        f"{locate(survey)}: actions were recorded in {range_}, and {physics.env_id} takes "
        f"{_bounds(world.spec.action)}: read so, its steps repeat to {physics.best.observation.median:.1g} (median); "
        f"as they are, to {physics.readings['recorded'].observation.median:.1g}."
    )
    yield Finding("error", "action-scale", message, settings={"actions_from": [-reach, reach]})
    if outside := replay.sample.beyond(reach):
        message = (
            f"{locate(survey)}: {outside:,} of {counted(survey.steps, 'action')} ({outside / survey.steps:.1%}) "
            f"{'lies' if outside == 1 else 'lie'} outside the range they were recorded in: got up to "
            f"{actions.largest:,.6g}, expected {range_}."
        )
        yield Finding("error", "out-of-range", message, settings={"actions": "clip"})


def _bounds(box: Box) -> str:
    if len(set(box.low)) == len(set(box.high)) == 1:
        return f"[{box.low[0]:g}, {box.high[0]:g}]"
    return f"up to {max(map(abs, (*box.low, *box.high))):g}, by dimension"


def judged_excess(finding: Finding, physics: Physics) -> Finding:
    """Of several ways to mend actions out of range, the replay knows the right one, or that cutting is not it."""
    if physics.cutting is None:
        return finding
    if physics.cutting == "different":
        told = f"{finding.message} Cut to the bounds, such steps do not lead in {physics.env_id} where they led."
        advice = "Drop these episodes; or if you know the range they were recorded in: data.actions_from=[low, high]"
        return replace(finding, message=told, advice=advice, settings={})
    itself = f"{physics.env_id} cuts them itself"
    how = "They were cut before they were played" if physics.actions == "clipped" else itself
    told = f"{finding.message} {how}: `clip` changes no motion."
    return replace(finding, message=told, advice="", settings={"actions": "clip"})
