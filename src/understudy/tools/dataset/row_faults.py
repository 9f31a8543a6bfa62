"""Rows that are wrong where others repeat: how many there are in all, where, and what is wrong with them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import Discrete
from understudy.data.recording import Recording
from understudy.envs.physics.agreement import BROKEN, Physics, Steps, read_actions
from understudy.envs.physics.break_patterns import ELSEWHERE, REACH, Cause, Diagnosis, Window, diagnose_breaks
from understudy.envs.physics.reward_rows import RewardRows, explains, judge_rewards
from understudy.envs.physics.stepping import Stepper, find_stepper, replayable
from understudy.tools.dataset.action_tally import chosen
from understudy.tools.dataset.blocks import EpisodeBlock, Faults, blocks_of
from understudy.tools.dataset.physics_sample import GROUP, Sample
from understudy.tools.dataset.reference_env import quiet_versions
from understudy.tools.dataset.survey import Survey

LOOKED_AT = 40
"""So many breaks are looked at closely; the others are taken to be alike."""
EXAMPLES = 3


@final
@dataclass(frozen=True)
class Pattern:
    """Breaks with one cause."""

    cause: Cause
    share: float
    """Of all steps, estimated from the sample."""
    steps: tuple[int, ...]
    """The first of those that were looked at, counted through the recording."""
    columns: tuple[int, ...] = ()
    """Of wrong observations: the columns that are most often off."""


@final
@dataclass(frozen=True)
class RowFaults:
    patterns: tuple[Pattern, ...]
    """The most frequent first."""
    breaks: tuple[int, ...]
    """Rows of the sample that do not follow, without those that rounding may explain."""
    rewards: RewardRows | None
    """Absent: the environment cannot judge them here."""
    other_version: str = ""
    """The version of the environment whose rewards those are that are off."""


def row_faults(
    stepper: Stepper, physics: Physics, sample: Sample, recording: Recording, survey: Survey, dropped: tuple[int, ...]
) -> RowFaults:
    """A further pass over the recording, if anything breaks."""
    with quiet_versions():
        found = _diagnosed(stepper, physics, sample, recording, survey, dropped)
        doubtful = {row for row, diagnosis in found.items() if diagnosis.cause == "rounding"}
        breaks = tuple(row for row in physics.breaks if row not in doubtful)
        if len(doubtful) == len(found):
            breaks = ()
        rewards = _reward_rows(stepper, physics, sample.steps, breaks)
        other = _other_version(physics, sample.steps, rewards) if rewards is not None else ""
    return RowFaults(_patterns(found, breaks, sample), breaks, rewards, other)


def _diagnosed(
    stepper: Stepper, physics: Physics, sample: Sample, recording: Recording, survey: Survey, dropped: tuple[int, ...]
) -> dict[int, Diagnosis]:
    """Row of the sample to what is wrong with it; of a recording that nowhere follows, of any rows."""
    rows = np.asarray(physics.breaks, np.int64)
    limit = physics.limit
    if physics.grade == "different" and not len(rows):
        rows, limit = np.arange(len(sample.numbers)), BROKEN * physics.tolerance
        rows = rows[np.isfinite(sample.steps.next_observations).all(axis=1)]
    if not len(rows):
        return {}
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, LOOKED_AT).astype(int))]
    windows = gather_windows(recording, survey, sample.numbers[rows], dropped)

    def read(actions: NDArray[Any]) -> NDArray[Any]:
        return read_actions(physics, stepper, actions)

    exact = limit < 10 * BROKEN * physics.tolerance
    diagnoses = diagnose_breaks(stepper, windows, read, limit, exact=exact)
    return dict(zip(map(int, rows), diagnoses, strict=True))


def gather_windows(
    recording: Recording, survey: Survey, steps: NDArray[np.int64], dropped: tuple[int, ...]
) -> list[Window]:
    """What stands around these steps, which are sorted and counted through the recording."""
    windows: list[Window] = []
    seen = 0
    for block in blocks_of(recording, Faults()):
        first, last = np.searchsorted(steps, [seen, seen + len(block.actions)])
        windows += [_window(block, int(row), survey, dropped) for row in steps[first:last] - seen]
        seen += len(block.actions)
        if len(windows) == len(steps):
            break
    return windows


def _window(block: EpisodeBlock, row: int, survey: Survey, dropped: tuple[int, ...]) -> Window:
    episode = int(np.searchsorted(block.first_steps, row, side="right")) - 1
    start, length = int(block.first_steps[episode]), int(block.lengths[episode])
    slot = int(block.first_slots[episode])
    state = np.asarray(block.observations[GROUP][slot : slot + length + bool(block.final_known[episode])], np.float64)
    if not block.final_known[episode]:
        state = np.concatenate([state, np.full_like(state[:1], np.nan)])
    state = np.delete(state, list(dropped), axis=1)
    actions = block.actions[start : start + length]
    if isinstance(survey.space, Discrete):
        actions = chosen(actions, survey.space.count)[0]
    at = row - start
    low, high = max(0, at - REACH), min(length, at + REACH + 1)
    far = np.setdiff1d(np.linspace(0, length - 1, 2 * ELSEWHERE).astype(int), np.arange(low, high))[:ELSEWHERE]
    others = state[far], actions[far], state[far + 1]
    return Window(state[low : high + 1].copy(), actions[low:high].copy(), at - low, at == length - 1, others)


def _patterns(found: dict[int, Diagnosis], breaks: Sequence[int], sample: Sample) -> tuple[Pattern, ...]:
    """Shares: that of all breaks, by the part each cause has in those that were looked at."""
    known = {row: diagnosis for row, diagnosis in found.items() if diagnosis.cause != "rounding"}
    if not known:
        return ()
    weights = sample.weights
    looked = sum(float(weights[row]) for row in known)
    everywhere = float(weights[list(breaks)].sum()) if len(breaks) else looked
    whole = max(float(weights.sum()), 1e-12) if len(breaks) else max(looked, 1e-12)
    patterns = []
    for cause in dict.fromkeys(diagnosis.cause for diagnosis in known.values()):
        rows = [row for row, diagnosis in known.items() if diagnosis.cause == cause]
        part = sum(float(weights[row]) for row in rows) / looked if looked else len(rows) / len(known)
        columns = Counter(known[row].columns for row in rows if known[row].columns).most_common(1)
        steps = tuple(int(sample.numbers[row]) for row in rows[:EXAMPLES])
        patterns.append(Pattern(cause, part * everywhere / whole, steps, columns[0][0] if columns else ()))
    return tuple(sorted(patterns, key=lambda pattern: -pattern.share))


def _reward_rows(stepper: Stepper, physics: Physics, steps: Steps, breaks: Sequence[int]) -> RewardRows | None:
    if physics.grade != "exact" or steps.rewards is None or physics.best.reward is None:
        return None
    recorded = np.asarray(steps.rewards, np.float64)
    played = stepper.step_from(
        np.asarray(steps.observations, np.float64), read_actions(physics, stepper, steps.actions)
    )
    columns = stepper.columns
    off = np.abs(played.next_observations - steps.next_observations)[:, :columns].max(axis=1)
    exact = off <= 10 * physics.tolerance
    unknown = np.full(len(recorded), np.nan)
    return judge_rewards(
        recorded,
        played.rewards,
        exact,
        unknown if steps.following_rewards is None else steps.following_rewards,
        unknown if steps.previous_rewards is None else steps.previous_rewards,
        np.zeros(len(recorded), bool) if steps.terminated is None else np.asarray(steps.terminated, bool),
    )


def _other_version(physics: Physics, steps: Steps, rewards: RewardRows) -> str:
    """The neighbouring version that rewards as it is recorded, where this one does not."""
    rows = np.flatnonzero(rewards.off)
    if not len(rows) or rewards.pattern in ("late", "early") or steps.rewards is None:
        return ""
    recorded = np.asarray(steps.rewards, np.float64)
    for env_id in replayable(physics.env_id):
        other = find_stepper(env_id) if env_id != physics.env_id else None
        if other is None or steps.observations.shape[1] < other.columns:
            continue
        given = read_actions(physics, other, steps.actions[rows])
        played = other.step_from(np.asarray(steps.observations[rows], np.float64), given)
        if explains(np.where(np.isfinite(played.rewards), recorded[rows], np.nan), played.rewards):
            return env_id
    return ""
