"""Do the episodes of a dataset end as those of an environment do?"""

from collections.abc import Iterator

import numpy as np

from understudy.data.surveys.findings import Finding, Level
from understudy.data.surveys.survey import Survey
from understudy.envs.physics import Terminals
from understudy.run.dataset.world import World

FEW = 0.1
"""A smaller share of denied terminals may be a matter of rounding at the threshold."""


def end_findings(survey: Survey, world: World, terminals: Terminals | None) -> list[Finding]:
    """`terminals` is what a replay says of the sampled ones."""
    return [*_longer(survey, world), *_terminals(survey, world, terminals), *_missed(survey, world, terminals)]


def ends_are_settled(world: World, terminals: Terminals | None) -> bool:
    """Nothing has to be guessed from lengths: the environment itself has spoken."""
    return world.can_terminate is False or (terminals is not None and terminals.confirmed + terminals.denied > 0)


def _longer(survey: Survey, world: World) -> Iterator[Finding]:
    limit = world.time_limit
    longer = int((survey.lengths > limit).sum()) if limit is not None else 0
    if longer:
        message = (
            f"dataset '{survey.name}': {longer:,} of {survey.episodes:,} episodes last longer than {world.env_id}: got "
            f"up to {survey.lengths.max():,} steps, expected at most {limit:,}."
        )
        yield Finding(
            "warning", "longer-than-limit", message, "Were they recorded under another limit, or boundaries lost?"
        )


def _terminals(survey: Survey, world: World, terminals: Terminals | None) -> Iterator[Finding]:
    ended = survey.lengths[survey.terminated]
    at_limit = int((ended == world.time_limit).sum())
    judged = terminals.confirmed + terminals.denied if terminals is not None else 0
    level: Level = "error"
    if not len(ended):
        return
    if world.can_terminate is False:
        reason = f"{world.env_id} never terminates"
    elif terminals is not None and judged:
        if terminals.denied == 0 or (terminals.denied <= FEW * judged and at_limit < 2):
            return
        reason = f"{world.env_id} goes on after {terminals.denied:,} of {judged:,} of them that were replayed"
    elif at_limit:
        reason = f"{at_limit:,} of them at step {world.time_limit:,}, the time limit of {world.env_id}"
        level = "error" if at_limit > 1 or at_limit == len(ended) else "warning"
    else:
        return
    message = (
        f"dataset '{survey.name}': a time limit is stored as terminal: {len(ended):,} of {survey.episodes:,} episodes "
        f"are marked terminated, but {reason}. Values would be cut off there."
    )
    yield Finding(level, "time-limit-as-terminal", message, _limit_fix(ended, at_limit, world))


def _limit_fix(ended: "np.ndarray[tuple[int], np.dtype[np.int64]]", at_limit: int, world: World) -> str:
    lengths, counts = np.unique(ended, return_counts=True)
    commonest, count = int(lengths[counts.argmax()]), int(counts.max())
    if at_limit:
        return f"time_limit={world.time_limit}"
    if count > 1 or len(ended) == 1:
        return f"time_limit={commonest}"
    return "Mark only true ends as terminal; ends for other reasons are truncations."


def _missed(survey: Survey, world: World, terminals: Terminals | None) -> Iterator[Finding]:
    if terminals is not None and terminals.missed:
        message = (
            f"dataset '{survey.name}': {world.env_id} ends after {terminals.missed:,} replayed steps that are not "
            "marked terminal: values would go on beyond the end."
        )
        yield Finding("warning", "missed-terminals", message, "Are `terminals` missing, or of another rule?")
