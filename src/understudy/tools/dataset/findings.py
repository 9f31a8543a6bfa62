"""Findings: what a survey means for somebody who wants to learn from the data, each with its remedy.

An error will be refused or silently ruins learning; a warning deserves a look; a note is good to know.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from understudy.core.spec import Box, Discrete
from understudy.data.corruption import COLUMN as CORRUPTED
from understudy.data.corruption import corruptions_in
from understudy.tools.dataset.action_tally import BoxActions, DiscreteActions
from understudy.tools.dataset.column_tally import ColumnSurvey
from understudy.tools.dataset.survey import Survey

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
NEARLY_ALL = 0.9
HUGE = 100.0
"""An action this many times the 99 % quantile (ten times as many of the median, if over 10) is hardly meant."""
REPEATED = 0.005
"""A larger share of observations that are exactly the one before is no chance, in a world of real numbers."""
ROUNDING = 0.1
"""Float32 shall not be coarser than this share of a column's spread."""


@dataclass(frozen=True)
class Finding:
    """One thing about the data."""

    level: Level
    kind: str
    message: str
    """In the voice of errors: `<where>: <what>: got <x>, expected <y>.`"""
    advice: str = ""
    """What to do, in a sentence; or the end of the sentence that the settings begin."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What mends it, as settings of `data:` and of `understudy dataset convert`: the first, or in its place another."""

    @property
    def fix(self) -> str:
        """Settings and advice as they are told."""
        return self.fix_within("")

    def fix_within(self, section: str) -> str:
        """The same with each setting's section before its name, as a config's overrides have it: `data.`"""
        return ", or ".join(section + setting_text(*setting) for setting in self.settings.items()) + self.advice

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "kind": self.kind,
            "message": self.message,
            "fix": self.fix,
            "settings": dict(self.settings),
        }


def setting_text(name: str, value: Any) -> str:
    """`drop_columns={state: [0, -1]}`: as it is written on a command line."""
    return f"{name}={_value_text(value)}"


def _value_text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case list():
            return f"[{', '.join(map(_value_text, value))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {_value_text(part)}' for name, part in value.items())}}}"
        case _:
            return str(value)


def findings(survey: Survey) -> list[Finding]:
    """Everything that can be told without an environment, errors first."""
    found = [finding for rule in RULES for finding in rule(survey)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def locate(survey: Survey, *, episode: int | None = None, then: str = "") -> str:
    place = f"dataset '{survey.name}'" + ("" if episode is None else f", episode {episode}")
    return f"{place}, {then}" if then else place


def _broken_episodes(survey: Survey) -> Iterator[Finding]:
    for fault in survey.faults:
        if fault.kind == "unreadable":
            fix = "What follows describes the episodes before it."
            yield Finding("error", "unreadable", f"From episode {fault.episode} on: {fault.what}", fix)
            continue
        expected = f", expected {fault.expected}" if fault.expected else ""
        more = "" if fault.count == 1 else f" {fault.count:,} episodes are like this."
        message = f"{locate(survey, episode=fault.episode)}: {fault.what}{expected}.{more}"
        yield Finding(
            "error",
            fault.kind,
            message,
            fault.do or "Repair these episodes, or leave them out when you write the file.",
        )
    if survey.episodes == 0:
        yield Finding("error", "no-episodes", f"{locate(survey)}: has no whole episode.", "There is nothing to learn.")


def _not_finite(survey: Survey) -> Iterator[Finding]:
    for name, column in survey.columns.items():
        place = column.first_non_finite
        if place is None:
            continue
        within = f", column {place.column}" if column.shape else ""
        where = locate(survey, episode=place.episode, then=f"{_title(name)}, row {place.row}{within}")
        message = f"{where}: not finite: {_many(column.non_finite, 'such value')}, expected finite float32."
        yield Finding("error", "non-finite", message, _cost_of_dropping(survey), {"not_finite": "drop"})


def _cost_of_dropping(survey: Survey) -> str:
    """What `not_finite=drop` does, in numbers."""
    lost, steps = int(survey.broken.sum()), int(survey.lengths[survey.broken].sum())
    parts = [f" leaves {_many(lost, 'episode')} out ({steps:,} of {_many(survey.steps, 'step')})"] if lost else []
    if survey.broken_finals:
        told = "final observations" if survey.broken_finals > 1 else "final observation"
        parts.append(f" takes {survey.broken_finals:,} {told} as unknown, and no step is lost by it")
    return f"{' and'.join(parts)}{'; not_finite=cut only the rows that are so' if lost else ''}."


def _time_limit(survey: Survey) -> Iterator[Finding]:
    """A time limit stored as terminal: nearly everything that ends, ends at one length, and nothing lasts longer."""
    ended = survey.lengths[survey.terminated]
    if len(ended) < 2:
        return
    longest = int(survey.lengths.max())
    at_limit = int((ended == longest).sum())
    if longest == 1 or at_limit < 2 or at_limit < NEARLY_ALL * len(ended):
        return
    every = "both" if at_limit == 2 else f"all {at_limit:,}"
    count = every if at_limit == len(ended) else f"{at_limit:,} of {len(ended):,}"
    message = (
        f"{locate(survey)}: a time limit seems to be stored as terminal: {count} episodes that terminate do so at step "
        f"{longest:,}, and none is longer. Values would be cut off there."
    )
    yield Finding("error", "time-limit-as-terminal", message, settings={"time_limit": longest})


def _ends(survey: Survey) -> Iterator[Finding]:
    unknown = int((~survey.final_known & ~survey.terminated).sum())
    if unknown:
        level: Level = "warning" if unknown > 0.05 * survey.steps else "note"
        message = (
            f"{locate(survey)}: the final observation of {_many(unknown, 'episode')} is unknown: their last steps "
            f"({unknown / survey.steps:.2%} of all) serve imitation, but no bootstrapped loss."
        )
        yield Finding(level, "unknown-final", message)
    endless = int((~survey.terminated & ~survey.truncated).sum())
    if endless:
        message = f"{locate(survey)}: {_many(endless, 'episode')} neither terminated nor truncated: read as cut off."
        yield Finding("note", "no-end", message)


def _lengths(survey: Survey) -> Iterator[Finding]:
    single = int((survey.lengths == 1).sum())
    if single and single == survey.episodes:
        message = f"{locate(survey)}: every episode has one step: a bandit problem, where nothing follows an action."
        yield Finding("note", "one-step", message)
    elif single:
        message = f"{locate(survey)}: {_many(single, 'episode')} of one step among longer ones. Are boundaries right?"
        yield Finding("warning", "one-step", message)
    if survey.episodes == 1:
        message = f"{locate(survey)}: a single episode: nothing can be held out for validation."
        yield Finding("warning", "single-episode", message)


def _action_space(survey: Survey) -> Iterator[Finding]:
    action, space = survey.columns.get("action"), survey.space
    if action is None or survey.actions is not None or space is None:
        return
    message = f"{locate(survey)}: actions do not fit the action space: got {list(action.shape)} {action.dtypes[0]}"
    yield Finding("error", "action-shape", f"{message}, expected {space.describe()}.", "Is it the right environment?")


def _box_actions(survey: Survey) -> Iterator[Finding]:
    actions = survey.actions
    if not isinstance(actions, BoxActions):
        return
    if actions.outside:
        yield _outside(survey, actions)
    elif actions.declared:
        yield from _narrow(survey, actions)
    elif _is_huge(actions):
        message = (
            f"{locate(survey)}: actions reach {actions.largest:,.6g}, though half of them stay within "
            f"{actions.middle:,.3g} and 99 % within {actions.usual:,.3g}: an unbounded policy, or a unit mixed up?"
        )
        advice = ", with the environment's bounds (--env ID)"
        yield Finding("warning", "large-actions", message, advice, {"actions": "clip"})


def _is_huge(actions: BoxActions) -> bool:
    beyond_usual = actions.usual > 0 and actions.largest > HUGE * actions.usual
    beyond_middle = actions.middle > 0 and actions.largest > max(10.0, 10 * HUGE * actions.middle)
    return beyond_usual or beyond_middle


def _outside(survey: Survey, actions: BoxActions) -> Finding:
    episode, row = actions.first_outside or (0, 0)
    message = (
        f"{locate(survey)}: {actions.outside:,} of {survey.steps:,} actions ({actions.outside / survey.steps:.1%}) lie "
        f"outside the action space: got up to {actions.largest:,.6g}, expected {_bounds(actions)}. "
        f"The first: episode {episode}, row {row}."
    )
    return Finding(
        "error",
        "out-of-range",
        message,
        " with the range they were recorded in",
        {"actions": "clip", "actions_from": ["low", "high"]},
    )


def _narrow(survey: Survey, actions: BoxActions) -> Iterator[Finding]:
    """Actions that fill [-1, 1] exactly, in a space that is wider: the sign of a policy's own units."""
    half = (np.asarray(actions.high) - np.asarray(actions.low)) / 2
    if actions.largest <= 1.0 + 1e-5 and actions.largest >= 0.95 and (half > 1.2).any():
        message = (
            f"{locate(survey)}: actions fill [-1, 1], while the action space is {_bounds(actions)}: were they recorded "
            "before scaling?"
        )
        advice = ", if the physics agree (--env ID)"
        yield Finding("warning", "action-scale", message, advice, {"actions_from": [-1.0, 1.0]})


def _bounds(actions: BoxActions) -> str:
    if len(set(actions.low)) == len(set(actions.high)) == 1:
        return f"[{actions.low[0]:g}, {actions.high[0]:g}]"
    return f"[{min(actions.low):g}, {max(actions.high):g}] at most, by dimension"


def _choices(survey: Survey) -> Iterator[Finding]:
    actions = survey.actions
    if not isinstance(actions, DiscreteActions):
        return
    if actions.wrong and _from_one(actions):
        message = (
            f"{locate(survey)}: actions are counted from 1: got 1 to {actions.choices}, expected 0 to "
            f"{(actions.choices or 0) - 1}."
        )
        yield Finding("error", "actions-from-one", message, "Subtract 1 from each when you write the file.")
    elif actions.wrong:
        episode, row = actions.first_wrong or (0, 0)
        range_ = "a whole number" if actions.choices is None else f"a whole number from 0 to {actions.choices - 1}"
        message = (
            f"{locate(survey, episode=episode, then=f'actions, row {row}')}: no such action: got "
            f"{actions.wrong_value:g}, expected {range_}. {_many(actions.wrong, 'step')} of {survey.steps:,}."
        )
        yield Finding("error", "no-such-action", message, "Is it the right environment? Otherwise drop these episodes.")
    never = [choice for choice in range(min(actions.choices or 0, 1000)) if not actions.counts.get(choice)]
    if never and not actions.wrong:
        message = f"{locate(survey)}: {_some(never, 'action')} of {actions.choices} never taken."
        yield Finding("note", "untried-actions", message)


def _from_one(actions: DiscreteActions) -> bool:
    """Every number is one too large: 0 never occurs, and what does not fit is the count itself."""
    too_large = actions.choices is not None and actions.wrong_values == (float(actions.choices),)
    return too_large and not actions.counts.get(0)


def _rewards(survey: Survey) -> Iterator[Finding]:
    distinct = survey.rewards.distinct
    if survey.facts.get("rewards") == "absent" or distinct == (0.0,):
        message = f"{locate(survey)}: has no rewards (all are 0): only imitation can learn from it."
        yield Finding("warning", "no-rewards", message)
    elif distinct is not None and len(distinct) == 1:
        message = f"{locate(survey)}: every reward is {distinct[0]:g}: only the length tells good episodes from bad."
        yield Finding("note", "constant-reward", message)
    elif _rewards_late(survey):
        message = (
            f"{locate(survey)}: rewards seem to be one row late: every episode begins with a reward of exactly 0 and "
            "ends with an action of zeros, as in d4rl-pybullet."
        )
        yield Finding("warning", "late-rewards", message, settings={"late_rewards": True})


def _rewards_late(survey: Survey) -> bool:
    if survey.episodes == 0 or not isinstance(survey.actions, BoxActions) or survey.steps == survey.episodes:
        return False
    first, last = survey.rewards.zero_first, survey.zero_last_actions
    return first == survey.episodes and last >= NEARLY_ALL * survey.episodes


def _constant(survey: Survey) -> Iterator[Finding]:
    for group, column in survey.observations.items():
        if column.constant:
            which = "all columns" if len(column.constant) == _width(column) else _some(column.constant, "column")
            message = (
                f"{locate(survey)}: {which} of observation '{group}' ({_width(column)} wide): always the same value."
            )
            yield Finding("note", "constant-columns", message)
    action = survey.columns.get("action")
    if action is not None and action.constant and isinstance(survey.actions, BoxActions):
        message = f"{locate(survey)}: {_some(action.constant, 'dimension')} of the actions: always the same value."
        yield Finding("warning", "constant-actions", message, "Is it the right column?")


def _duplicates(survey: Survey) -> Iterator[Finding]:
    few = survey.distinct_states <= 0.1 * survey.steps
    if survey.duplicate_episodes and survey.lengths.max() > 1 and few:
        message = (
            f"{locate(survey)}: {survey.duplicate_episodes:,} of {survey.episodes:,} episodes repeat an earlier one "
            "exactly. A world of few states, so that is natural; a validation split would leak."
        )
        yield Finding("note", "duplicate-episodes", message)
    elif survey.duplicate_episodes and survey.lengths.max() > 1:
        message = (
            f"{locate(survey)}: {survey.duplicate_episodes:,} of {survey.episodes:,} episodes repeat an earlier one "
            "exactly: they weigh more in learning, and a validation split would leak."
        )
        yield Finding("warning", "duplicate-episodes", message, "Drop the copies.")
    share = survey.duplicate_steps / max(1, survey.steps)
    if share >= 0.01 and not survey.duplicate_episodes:
        message = f"{locate(survey)}: {share:.1%} of the transitions repeat an earlier one exactly."
        told = " A world of few states, so that is natural." if few else ""
        yield Finding("note" if few else "warning", "duplicate-steps", message + told)


def _time_feature(survey: Survey) -> Iterator[Finding]:
    for group, column in survey.time_columns.items():
        message = (
            f"{locate(survey)}: column {column} of observation '{group}' looks like a time feature: it only counts the "
            "steps of an episode."
        )
        advice = ", if it was appended and the environment does not show it (--env ID tells)"
        yield Finding("note", "time-feature", message, advice, {"drop_columns": {group: [column]}})


def _corrupted(survey: Survey) -> Iterator[Finding]:
    """What `dataset corrupt` wrote tells of itself."""
    column = survey.columns.get(f"extra.{CORRUPTED}")
    if column is None or column.shape:
        return
    rows = round(float(column.mean[0]) * column.rows)
    told = " ".join(record.sentence() for record in corruptions_in(survey.facts))
    message = f"{locate(survey)}: {_many(rows, 'step')} of {survey.steps:,} are marked as made wrong on purpose. {told}"
    yield Finding("warning", "corrupted", message.rstrip(), "Learn from it to measure, not to use what was learned.")


def _repeated(survey: Survey) -> Iterator[Finding]:
    """A recorder that dropped frames; worlds that stand still, of few or whole-numbered states, do so naturally."""
    share = survey.repeated_observations / max(1, survey.steps)
    columns = survey.observations.values()
    smooth = all(any(dtype.startswith("float") for dtype in column.dtypes) for column in columns)
    if share < REPEATED or not smooth or survey.distinct_states < 0.5 * survey.steps:
        return
    message = (
        f"{locate(survey)}: {share:.1%} of the steps lead to the very observation they started from "
        f"({survey.repeated_observations:,} of {survey.steps:,}): frames that a recorder dropped, or a world that "
        "stood still?"
    )
    yield Finding("warning", "repeated-observations", message)


def _precision(survey: Survey) -> Iterator[Finding]:
    for name, column in survey.columns.items():
        if "uint8" in column.dtypes and len(column.dtypes) > 1 and name.startswith("observation."):
            message = f"{locate(survey)}: {_title(name)} is bytes in some episodes and {column.dtypes[0]} in others."
            yield Finding("error", "mixed-dtypes", message, "Store it in one dtype.")
    wide = [_title(name) for name, column in survey.columns.items() if "float64" in column.dtypes]
    if wide:
        mixed = " (not in every episode)" if any(len(column.dtypes) > 1 for column in survey.columns.values()) else ""
        message = f"{locate(survey)}: {', '.join(wide)} in float64{mixed}: learning rounds them to float32."
        yield Finding("note", "float64", message)
    for group, column in survey.observations.items():
        steps = np.spacing(np.maximum(np.abs(column.minimum), np.abs(column.maximum)).astype(np.float32))
        if lost := np.flatnonzero((column.std > 0) & (steps > ROUNDING * column.std)).tolist():
            message = (
                f"{locate(survey)}: {_some(lost, 'column')} of observation '{group}': large numbers that differ by "
                "little, and learning rounds the difference away (to float32)."
            )
            fix = "Record them from another zero point (a clock from the start of the episode), or hide_columns."
            yield Finding("warning", "lost-in-float32", message, fix)


def _masks(survey: Survey) -> Iterator[Finding]:
    masks = survey.masks
    if masks is None:
        return
    if isinstance(survey.space, Box):
        message = f"{locate(survey)}: has action masks, but its actions are continuous."
        yield Finding("error", "mask-of-box", message, "Drop the masks.")
        return
    if isinstance(survey.space, Discrete) and masks.width != survey.space.count:
        message = f"{locate(survey)}: masks have the wrong width: got {masks.width}, expected {survey.space.count}."
        yield Finding("error", "mask-shape", message, "Is it the right environment?")
        return
    if masks.first_forbidden is not None:
        episode, row = masks.first_forbidden
        message = f"{locate(survey, episode=episode, then=f'row {row}')}: its mask forbids the action it took."
        told = f" {_many(masks.forbidden, 'such step')}." if masks.forbidden > 1 else ""
        yield Finding("error", "mask-forbids", message + told, "Is the mask one row off?")
    if masks.first_empty is not None:
        episode, row = masks.first_empty
        message = f"{locate(survey, episode=episode, then=f'mask, row {row}')}: no action is legal."
        told = f" {_many(masks.empty, 'such row')}." if masks.empty > 1 else ""
        yield Finding("error", "mask-empty", message + told, "Only a terminal state may have no legal action.")


def _width(column: ColumnSurvey) -> int:
    return len(column.minimum)


def _title(name: str) -> str:
    """`observation.state` as people say it."""
    kind, _, rest = name.partition(".")
    return f"{kind} '{rest}'" if kind == "observation" else (rest or f"{kind}s")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _some(numbers: list[int], noun: str) -> str:
    """`columns 1, 2, 3 and 9 more`"""
    shown = ", ".join(map(str, numbers[:6]))
    more = f" and {len(numbers) - 6} more" if len(numbers) > 6 else ""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {shown}{more}"


RULES: tuple[Callable[[Survey], Iterator[Finding]], ...] = (
    _broken_episodes,
    _not_finite,
    _time_limit,
    _action_space,
    _box_actions,
    _choices,
    _masks,
    _precision,
    _rewards,
    _time_feature,
    _corrupted,
    _repeated,
    _duplicates,
    _lengths,
    _constant,
    _ends,
)
