"""What is said of single rows that are wrong: rewards that are off, and steps that do not follow, by their pattern."""

from collections.abc import Iterator, Sequence

import numpy as np

from understudy.envs.physics.agreement import MUCH, Errors
from understudy.envs.physics.break_patterns import Cause
from understudy.envs.physics.reward_rows import EXPLAINED, OFF, RewardRows
from understudy.tools.dataset.findings import Finding, Level, locate
from understudy.tools.dataset.physics_replay import Replay
from understudy.tools.dataset.reference_env import World
from understudy.tools.dataset.row_faults import Pattern
from understudy.tools.dataset.survey import Survey

RUINOUS = 0.01
"""A larger share of wrong rows fails."""
EXAMPLES = 3
MINOR = 0.1
"""What is so much rarer than another pattern is that one, seen from an odd side."""


def place_of(step: int, survey: Survey) -> str:
    """`episode 3, row 17`, of a step counted through the recording."""
    last = np.cumsum(survey.lengths) - 1
    episode = int(np.searchsorted(last, step))
    row = step - int(last[episode] - survey.lengths[episode] + 1)
    return f"episode {survey.numbers[episode]}, row {row}"


def _places(steps: Sequence[int], survey: Survey) -> str:
    return "; ".join(place_of(step, survey) for step in steps[:EXAMPLES])


def percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


# Rewards.


def reward_findings(survey: Survey, replay: Replay) -> Iterator[Finding]:
    rows = replay.faults.rewards
    if rows is None:
        yield from _by_the_median(survey, replay)
    elif rows.off.any():
        yield _wrong_rewards(survey, replay, rows)


def _by_the_median(survey: Survey, replay: Replay) -> Iterator[Finding]:
    """Where the motion is only close, single rewards say nothing."""
    physics, reading = replay.physics, replay.physics.best
    if reading.reward is None:
        return
    if physics.rewards == "late" and reading.late_reward is not None:
        message = (
            f"{locate(survey)}: rewards are late by one row: those of {physics.env_id} agree with the next row's to "
            f"{reading.late_reward.median:.1g} (median), with the own row's to {reading.reward.median:.1g}."
        )
        yield Finding("error", "late-rewards", message, settings={"late_rewards": True})
    elif physics.rewards == "different":
        yield _not_its_rewards(survey, replay, reading.reward)


def _not_its_rewards(survey: Survey, replay: Replay, errors: Errors) -> Finding:
    message = (
        f"{locate(survey)}: rewards are not those of {replay.physics.env_id}: off by {errors.median:.1g} (median), "
        f"{errors.most:.1g} (90%), {errors.worst:.1g} (worst), though the motion agrees. Returns do not compare with "
        "the environment's."
    )
    advice = "Another version, or a reward of one's own? Learning takes what is recorded."
    return Finding("warning", "rewards", message, advice)


def _wrong_rewards(survey: Survey, replay: Replay, rows: RewardRows) -> Finding:
    env_id, weights = replay.physics.env_id, replay.sample.weights
    share = float(weights[rows.off].sum() / max(weights[rows.judged].sum(), 1e-12))
    level: Level = "error" if share > RUINOUS else "warning"
    everywhere = share >= EXPLAINED
    many = f"{rows.off.sum():,} of {rows.judged.sum():,} rewards whose steps repeat in {env_id} ({percent(share)})"
    shown = _examples(survey, replay, rows)
    reward = replay.physics.best.reward
    if replay.faults.other_version:
        message = f"{locate(survey)}: {many} are those of {replay.faults.other_version}, not its own. {shown}"
        return Finding("warning", "rewards", message, f"Use --env {replay.faults.other_version}")
    if rows.pattern in ("late", "early"):
        return _shifted(survey, rows, many, env_id, everywhere=everywhere)
    if _cut_after_rewarding(replay) and reward is not None:
        message = (
            f"{locate(survey)}: rewards agree with {env_id} except where actions lie at their bounds (off by "
            f"{reward.median:.1g}, median): actions were cut after they had been rewarded. The motion is the same."
        )
        return Finding("warning" if replay.physics.rewards == "different" else "note", "rewards", message)
    if rows.pattern == "ends":
        message = f"{locate(survey)}: {many} are off, all of them of terminal steps: a reward for the end? {shown}"
        return Finding("warning", "rewards", message, "Learning takes what is recorded.")
    if rows.pattern == "negated":
        message = f"{locate(survey)}: {many} have the wrong sign. {shown}"
        return Finding(
            level, "rewards", message, "Write them with the environment's sign: learning would avoid what is good."
        )
    if rows.pattern == "affine":
        shift = f" {'−' if rows.shift < 0 else '+'} {abs(rows.shift):.4g}" if abs(rows.shift) > OFF else ""
        line = f"{rows.factor:.4g} × reward{shift}"
        message = f"{locate(survey)}: {many} are {line}. {shown}"
        own = everywhere and rows.factor > 0
        advice = "Learning takes what is recorded." if own else "Write them anew: learning takes what is recorded."
        return Finding("warning" if own else level, "rewards", message, advice)
    if everywhere and reward is not None:
        return _not_its_rewards(survey, replay, reward)
    message = f"{locate(survey)}: {many} are off, and the others are right. {shown}"
    return Finding(level, "rewards", message, "Write these rewards anew, or leave the episodes out.")


def _examples(survey: Survey, replay: Replay, rows: RewardRows) -> str:
    stored = replay.sample.steps.rewards
    off = np.flatnonzero(rows.off)[:EXAMPLES]
    if stored is None:
        return ""
    places = [place_of(int(number), survey) for number in replay.sample.numbers[off]]
    told = (
        f"{place} (got {stored[row]:.4g}, expected {rows.predicted[row]:.4g})"
        for place, row in zip(places, off, strict=True)
    )
    return f"The first: {'; '.join(told)}."


def _shifted(survey: Survey, rows: RewardRows, many: str, env_id: str, *, everywhere: bool) -> Finding:
    """Late by one can be mended, if all are; early by one lacks each episode's first."""
    if rows.pattern == "late":
        if everywhere:
            message = f"{locate(survey)}: rewards are late by one row: {many} stand in the row after."
            return Finding("error", "late-rewards", message, settings={"late_rewards": True})
        message = f"{locate(survey)}: rewards are late by one row in part of the data: {many} stand in the row after."
        return Finding("error", "late-rewards", message, "Move them one row up in the episodes concerned.")
    message = (
        f"{locate(survey)}: rewards are early by one row: {many} stand in the row before. What {env_id} gave for an "
        "action is written with the action before it."
    )
    return Finding("error", "early-rewards", message, "Move them one row down in the episodes concerned.")


def _cut_after_rewarding(replay: Replay) -> bool:
    """Rewards are right where no action touches its bounds, and not elsewhere: the cost was that of larger actions."""
    whole, inner = replay.physics.best.reward, replay.inner_rewards
    return whole is not None and inner is not None and MUCH * max(inner.most, replay.physics.tolerance) < whole.most


# Steps that do not follow.

KINDS: dict[Cause, tuple[str, str, str]] = {
    "negated action": ("wrong-actions", "actions have the wrong sign", "With the other sign, the steps follow."),
    "other action": (
        "wrong-actions",
        "actions are not those that were taken",
        "Other actions lead where the steps led.",
    ),
    "late action": ("late-actions", "actions are late by one row", "With the next row's action, the steps follow."),
    "early action": ("early-actions", "actions are early by one row", "With the action before, the steps follow."),
    "repeated observation": (
        "repeated-observations",
        "observations repeat the one before",
        "The steps lead on, and the recording stood still (a dropped frame?).",
    ),
    "swapped observations": (
        "wrong-observations",
        "neighbouring observations are exchanged",
        "Exchanged back, the steps follow.",
    ),
    "observation": (
        "wrong-observations",
        "observations are wrong",
        "The steps before and after them agree with each other.",
    ),
    "degrees": ("wrong-column", "an observation is in degrees", "Read as radians, the steps follow."),
    "final": (
        "wrong-finals",
        "final observations are not those of their steps",
        "Were they taken after a reset? Leave `next_observations` out: they count as unknown.",
    ),
    "boundary": (
        "lost-boundaries",
        "steps lead elsewhere than to the observation stored next",
        "No action leads there: was the end of an episode lost, or a row left out?",
    ),
    "episode": (
        "mixed-environments",
        "whole episodes do not follow",
        "Are they of another environment or version, or recorded otherwise? Leave them out.",
    ),
}


def break_findings(survey: Survey, world: World, replay: Replay) -> Iterator[Finding]:
    patterns = replay.patterns(survey, world.time_limit)
    if replay.physics.grade == "different":  # then only what explains most of it says anything
        named = [
            pattern for pattern in patterns if pattern.cause not in ("episode", "boundary", "observation", "final")
        ]
        patterns = [pattern for pattern in named if pattern.share >= 0.5]
    kinds: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        kinds.setdefault(KINDS[pattern.cause][0], []).append(pattern)
    shares = {kind: sum(pattern.share for pattern in alike) for kind, alike in kinds.items()}
    for kind, alike in kinds.items():
        if shares[kind] >= MINOR * max(shares.values()):
            yield _break_finding(survey, replay, alike, shares[kind])


def _break_finding(survey: Survey, replay: Replay, alike: Sequence[Pattern], share: float) -> Finding:
    """Patterns of one name, by the most frequent of them."""
    main = alike[0]
    kind, what, advice = KINDS[main.cause]
    several = "s" if len(main.columns) > 1 else ""
    columns = f" (column{several} {', '.join(map(str, main.columns))})" if main.columns else ""
    breaks = len(replay.physics.breaks)
    message = (
        f"{locate(survey)}: {what}{columns}: {percent(share)} of the steps do not follow for it in "
        f"{replay.physics.env_id} ({breaks:,} of {len(replay.sample.numbers):,} sampled ones do not, for any reason). "
        f"The first: {_places(main.steps, survey)}."
    )
    return Finding("error" if _is_ruinous(survey, main, share) else "warning", kind, message, advice)


def _is_ruinous(survey: Survey, main: Pattern, share: float) -> bool:
    """Of boundaries, those that are lost are compared with those that there are."""
    if main.cause == "boundary":
        lost = share * survey.steps
        return len(main.steps) > 1 and lost > RUINOUS * (lost + survey.episodes)
    return share > RUINOUS
