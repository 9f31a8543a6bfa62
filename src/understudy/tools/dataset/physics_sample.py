"""Some steps of a recording to replay, in the precision they were recorded in, picked from one pass over all of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import Box, Discrete
from understudy.data.assemble import outside_box
from understudy.data.episode import Array
from understudy.data.recording import Recording
from understudy.envs.physics.agreement import Steps, sample_rows
from understudy.envs.physics.stepping import Stepper
from understudy.tools.dataset.action_tally import BoxActions, chosen
from understudy.tools.dataset.blocks import EpisodeBlock, Faults, blocks_of
from understudy.tools.dataset.survey import Survey

GROUP = "state"
"""Every environment that can set its state shows it in this group."""
SAMPLE = 500
OUTSIDE = 50
"""So many steps with actions out of range are replayed, chosen or not: to see what the environment makes of them."""
LOST = (0, 1)
"""Steps that recorders lose at a time limit: those that wait for the next observation lose one."""
SPARE, FEW_MISSING = 10, 25
"""So many times the sample is read where observations hide part of the state, if more than a few rows are missing."""
OPEN_ENDS = 50
"""So many last steps of episodes that did not terminate are replayed besides the terminal ones."""


@final
@dataclass(frozen=True)
class Sample:
    """N steps, and where each stands."""

    steps: Steps
    numbers: NDArray[np.int64]
    """[N] counted through the whole recording."""
    reach: NDArray[np.float32]
    """The largest |component| of every action of the recording, not only of these."""
    weights: NDArray[np.float64]
    """[N] how many steps of the recording each stands for; 0: it was looked for."""

    def beyond(self, reach: float) -> int:
        """Of all steps of the recording: those with an action outside [-reach, reach]."""
        return int((self.reach > reach * (1 + 1e-5)).sum())


def gather(
    recording: Recording,
    survey: Survey,
    dropped: tuple[int, ...],
    limit: int | None = None,
    stepper: Stepper | None = None,
) -> Sample | None:
    """About SAMPLE steps without the dropped columns; None if there is no step at all. `limit`: the environment's.

    Where observations hide part of the state from the `stepper`, as many others take their place as there are.
    """
    suspected = [suspected_ends(survey, limit, lost) for lost in LOST]
    base = wanted_steps(survey)
    spare = np.setdiff1d(sample_rows(survey.steps, base[:0], SPARE * SAMPLE), base) if stepper is not None else base[:0]
    wanted = np.unique(np.concatenate([base, spare, *suspected]))
    sought: list[NDArray[np.int64]] = [*suspected]
    parts: list[dict[str, Array]] = []
    numbers, reaches = [], []
    seen, missing = 0, _missing(survey)
    for block in blocks_of(recording, Faults()):
        first, last = np.searchsorted(wanted, [seen, seen + len(block.actions)])
        beyond = _outside(block, survey)[:missing] if missing else np.empty(0, np.intp)
        rows = np.union1d(wanted[first:last] - seen, beyond).astype(np.int64)
        if len(rows):
            parts.append(_rows(block, rows))
            numbers.append(rows + seen)
        sought.append(beyond + seen)
        reaches.append(_reach(block))
        missing -= len(beyond)
        seen += len(block.actions)
    if not parts:
        return None
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name in ("observations", "next_observations"):
        columns[name] = np.delete(columns[name], list(dropped), axis=1)
    for name in ("rewards", "following_rewards", "previous_rewards"):
        columns[name] = np.where(np.isfinite(columns[name]), columns[name], np.nan)
    if isinstance(survey.space, Discrete):
        columns["actions"] = chosen(columns["actions"], survey.space.count)[0]
    if survey.facts.get("rewards") == "absent":
        del columns["rewards"], columns["following_rewards"], columns["previous_rewards"]
    places = np.concatenate(numbers)
    spare = np.setdiff1d(spare, np.concatenate(sought))
    if stepper is not None and len(spare):
        surplus = _surplus(stepper, columns, np.isin(places, spare))
        columns, places = {name: values[~surplus] for name, values in columns.items()}, places[~surplus]
    fair = np.isin(places, np.union1d(base, spare))
    return Sample(Steps(**columns), places, np.concatenate(reaches), _weights(survey, places, fair))


def _surplus(stepper: Stepper, columns: Mapping[str, Array], spare: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[N]: spare rows that are not needed, or of no use either."""
    useful = stepper.holds_state(columns["observations"]) & np.isfinite(columns["next_observations"]).all(axis=1)
    missing = SAMPLE - int((useful & ~spare).sum())
    order = np.random.default_rng(1).permutation(np.flatnonzero(spare & useful))
    kept = order[: max(0, missing)] if missing > FEW_MISSING else order[:0]
    surplus = spare.copy()
    surplus[kept] = False
    return surplus


def _weights(survey: Survey, places: NDArray[np.int64], fair: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Last steps and others are strata of their own, for the first are sampled more often."""
    last = np.isin(places, np.cumsum(survey.lengths) - 1)
    weights = np.zeros(len(places))
    for flags, total in ((last, survey.episodes), (~last, survey.steps - survey.episodes)):
        weights[flags & fair] = total / max(1, int((flags & fair).sum()))
    return weights


def wanted_steps(survey: Survey) -> NDArray[np.int64]:
    """Steps chosen by chance, and ends: terminal ones first, for they are what is most often wrong."""
    last = np.cumsum(survey.lengths) - 1
    open_ends = last[~survey.terminated & survey.final_known]
    some = (
        open_ends[np.unique(np.linspace(0, len(open_ends) - 1, OPEN_ENDS).astype(int))] if len(open_ends) else last[:0]
    )
    rows = sample_rows(survey.steps, last[survey.terminated], SAMPLE - len(some))
    return np.union1d(rows, some).astype(np.int64)


def suspected_ends(survey: Survey, limit: int | None, lost: int = 0) -> NDArray[np.int64]:
    """In episodes longer than the limit: steps after which an episode ended, if several were joined to one.

    `lost`: so many steps at the end of each were not written.
    """
    if limit is None or limit <= lost:
        return np.empty(0, np.int64)
    period = limit - lost
    starts = (np.cumsum(survey.lengths) - survey.lengths)[survey.lengths > limit]
    inner = (survey.lengths[survey.lengths > limit] - 1) // period
    first = np.repeat(np.cumsum(inner) - inner, inner)
    ends = np.repeat(starts, inner) + period * (np.arange(len(first)) - first + 1) - 1
    return ends[np.unique(np.linspace(0, len(ends) - 1, OPEN_ENDS).astype(int))] if len(ends) else ends


def _rows(block: EpisodeBlock, rows: NDArray[np.int64]) -> dict[str, Array]:
    """These steps of a block; what does not exist is NaN."""
    values, slots = block.observations[GROUP], block.step_slots[rows]
    after = np.asarray(values[np.minimum(slots + 1, len(values) - 1)], np.float64)
    after[np.isin(rows, block.last_steps[~block.final_known])] = np.nan
    following = np.asarray(block.rewards[np.minimum(rows + 1, len(block.rewards) - 1)], np.float64)
    following[np.isin(rows, block.last_steps)] = np.nan
    previous = np.asarray(block.rewards[np.maximum(rows - 1, 0)], np.float64)
    previous[np.isin(rows, block.first_steps)] = np.nan
    return {
        "observations": np.asarray(values[slots], np.float64),
        "actions": block.actions[rows],
        "next_observations": after,
        "rewards": np.asarray(block.rewards[rows], np.float64),
        "following_rewards": following,
        "previous_rewards": previous,
        "terminated": np.isin(rows, block.last_steps[block.terminated]),
    }


def _reach(block: EpisodeBlock) -> NDArray[np.float32]:
    actions = block.actions.reshape(len(block.actions), -1)
    if actions.dtype.kind != "f":
        return np.zeros(len(actions), np.float32)
    return np.asarray(np.abs(actions).max(axis=1, initial=0.0), np.float32)


def _missing(survey: Survey) -> int:
    """How many steps with actions out of range have to be looked for, since chance brings too few."""
    actions = survey.actions
    outside = actions.outside if isinstance(actions, BoxActions) else 0
    return OUTSIDE if 0 < outside * SAMPLE < OUTSIDE * survey.steps else 0


def _outside(block: EpisodeBlock, survey: Survey) -> NDArray[np.intp]:
    """Steps of a block with an action outside the space."""
    space = survey.space
    if not isinstance(space, Box) or block.actions.dtype.kind != "f":
        return np.empty(0, np.intp)
    return np.flatnonzero(outside_box(block.actions.reshape(len(block.actions), -1), space))
