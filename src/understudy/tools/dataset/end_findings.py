"""Do the episodes of a dataset end as those of an environment do?"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understudy.core.wording import counted
from understudy.envs.physics.agreement import Terminals
from understudy.tools.dataset.findings import Finding, Level, locate
from understudy.tools.dataset.physics_replay import Replay
from understudy.tools.dataset.physics_sample import LOST, Sample, suspected_ends
from understudy.tools.dataset.reference_env import World
from understudy.tools.dataset.survey import Survey

FEW = 0.1
"""A smaller share of denied terminals, or a single one, may be a matter of rounding at the threshold."""
MISSED = 0.01
"""The same of terminals that are missing: a fall at the last moment."""
CLUSTER = 0.9
"""So many of the terminals that are wrong have one length, if it is that of a time limit."""
Lengths = NDArray[np.int64]
JOINED = 0.25
"""Where episodes were joined, all joints break but those whose observations hide part of the state."""


def end_findings(
    survey: Survey,
    world: World,
    terminals: Terminals | None,
    sample: Sample | None = None,
    joined: int | None = None,
    *,
    late: bool = False,
    irregular: bool = False,
) -> list[Finding]:
    """`terminals` is what a replay says of those in the `sample`, `joined` after how many steps it says that
    episodes which are too long were joined (0: they were not).

    `irregular`: it says that boundaries are lost at other places too, so that no clock can restore them.
    Where rewards are `late`, an episode may have a row more than steps: for the last reward (d4rl-pybullet).
    """
    if late and world.time_limit is not None and survey.lengths.max() == world.time_limit + 1:
        world = replace(world, time_limit=world.time_limit + 1)
    return [
        *_longer(survey, world, joined, irregular=irregular),
        *_terminals(survey, world, terminals, sample),
        *_missed(survey, world, terminals, sample),
    ]


def joints(survey: Survey, world: World, replay: Replay | None) -> int | None:
    """After how many steps too long episodes were joined; 0: they were not, None: no replay says."""
    if replay is None or replay.physics.grade == "different" or world.time_limit is None:
        return None
    shares: dict[int, float] = {}
    for lost in LOST:
        suspected = np.isin(replay.sample.numbers, suspected_ends(survey, world.time_limit, lost))
        if suspected.any():
            shares[world.time_limit - lost] = suspected[list(replay.physics.breaks)].sum() / suspected.sum()
    if not shares:
        return None
    likeliest = max(shares, key=lambda steps: shares[steps])
    return likeliest if shares[likeliest] >= JOINED else 0


def is_irregular(survey: Survey, world: World, replay: Replay | None) -> bool:
    """Boundaries were lost elsewhere than at a time limit: by the motion, or the environment is over in the middle."""
    if replay is None:
        return False
    lost = any(pattern.cause == "boundary" for pattern in replay.patterns(survey, world.time_limit))
    terminals, last = replay.physics.terminals, np.cumsum(survey.lengths) - 1
    missed = replay.sample.numbers[list(terminals.missed_rows)] if terminals is not None else last[:0]
    return lost or bool((~np.isin(missed, last)).any())


def ends_are_settled(world: World, terminals: Terminals | None) -> bool:
    """Nothing has to be guessed from lengths: the environment itself has spoken."""
    return world.can_terminate is False or (terminals is not None and terminals.confirmed + terminals.denied > 0)


def _longer(survey: Survey, world: World, joined: int | None, *, irregular: bool) -> Iterator[Finding]:
    """Longer than the environment lasts: several in one, if they break there or nothing marks a time limit."""
    limit = world.time_limit
    longer = int((survey.lengths > limit).sum()) if limit is not None else 0
    if not longer:
        return
    message = (
        f"{locate(survey)}: {longer:,} of {counted(survey.episodes, 'episode')} "
        f"{'lasts' if longer == 1 else 'last'} longer than {world.env_id}: got up to "
        f"{counted(int(survey.lengths.max()), 'step')}, expected at most {limit:,}."
    )
    if irregular:
        told = " They are several in one, joined at places that no length tells: values would be learned across resets."
        yield Finding("error", "longer-than-limit", message + told, "Write the ends of episodes into the file.")
    elif joined == 0:
        told = f" {world.env_id} goes on from there: they were recorded under another limit."
        yield Finding("warning", "longer-than-limit", message + told)
    elif joined or not _delimited(survey):
        why = f"they break off every {joined:,} steps" if joined else "no step is marked as a time limit"
        told = f" They are several in one, for {why}: values would be learned across resets."
        yield Finding("error", "longer-than-limit", message + told, settings={"episode_steps": joined or limit})
    else:
        fix = f"Recorded under another limit? If boundaries were lost: data.episode_steps={limit}"
        yield Finding("warning", "longer-than-limit", message, fix)


def _delimited(survey: Survey) -> bool:
    """Something marks ends that are no terminals: time limits, or numbers of episodes."""
    other = ~survey.terminated
    return bool(survey.truncated.any()) or int(other.sum()) > 1  # the last one may only end with the file


def _terminals(survey: Survey, world: World, terminals: Terminals | None, sample: Sample | None) -> Iterator[Finding]:
    ended = survey.lengths[survey.terminated]
    at_limit = int((ended == world.time_limit).sum())
    judged = terminals.confirmed + terminals.denied if terminals is not None else 0
    level: Level = "error"
    suspects = ended
    if not len(ended):
        return
    if world.can_terminate is False:
        reason = f"{world.env_id} never terminates"
    elif terminals is not None and judged:
        if terminals.denied == 0:
            return
        level = "error" if terminals.denied > max(1, FEW * judged) or at_limit > 1 else "warning"
        suspects = _lengths_of(terminals.denied_rows, survey, sample)
        reason = f"{world.env_id} goes on after {terminals.denied:,} of {judged:,} of them that were replayed"
    elif at_limit:
        suspects = ended[ended == world.time_limit]
        reason = f"{at_limit:,} of them at step {world.time_limit:,}, the time limit of {world.env_id}"
        level = "error" if at_limit > 1 or at_limit == len(ended) else "warning"
    else:
        return
    limit = _stored_limit(suspects, world)
    what = "terminals that are none" if limit is None else "a time limit is stored as terminal"
    message = (
        f"{locate(survey)}: {what}: {len(ended):,} of "
        f"{counted(survey.episodes, 'episode')} {'is' if len(ended) == 1 else 'are'} marked terminated, "
        f"but {reason}. Values would be cut off there."
    )
    if limit is None:
        advice = "Mark only true ends as terminal; ends for other reasons are truncations."
        yield Finding(level, "time-limit-as-terminal", message, advice)
    else:
        yield Finding(level, "time-limit-as-terminal", message, settings={"time_limit": limit})


def _lengths_of(rows: tuple[int, ...], survey: Survey, sample: Sample | None) -> Lengths:
    """How long the episodes are that these rows of the sample end."""
    if sample is None:
        return survey.lengths[:0]
    last = np.cumsum(survey.lengths) - 1
    lengths: Lengths = survey.lengths[np.searchsorted(last, sample.numbers[list(rows)])]
    return lengths


def _stored_limit(suspects: Lengths, world: World) -> int | None:
    """The length at which terminals mean a time limit: nearly all that are wrong have it."""
    if not len(suspects):
        return None
    lengths, counts = np.unique(suspects, return_counts=True)
    likeliest = int(lengths[counts.argmax()])
    clustered = counts.max() > 1 and counts.max() >= CLUSTER * len(suspects)
    if clustered or (likeliest == world.time_limit and counts.max() >= CLUSTER * len(suspects)):
        return likeliest
    return None


def _missed(survey: Survey, world: World, terminals: Terminals | None, sample: Sample | None) -> Iterator[Finding]:
    """Where an episode stops as its environment does, the mark is wrong; where it goes on, the rule was another."""
    if terminals is None or not terminals.missed:
        return
    last = np.cumsum(survey.lengths) - 1
    ends = int(np.isin(sample.numbers[list(terminals.missed_rows)], last).sum()) if sample is not None else 0
    inside = terminals.missed - ends
    if ends:
        judged = ends + terminals.confirmed
        message = (
            f"{locate(survey)}: terminals are missing: {ends:,} of {counted(judged, 'episode')} that {world.env_id} "
            f"ended, of those looked at, {'is' if ends == 1 else 'are'} marked as cut off: values would go on beyond "
            "the end."
        )
        level: Level = "error" if ends > max(1, MISSED * judged) else "warning"
        yield Finding(level, "missed-terminals", message, "Mark as `terminals` what the environment ended.")
    if inside:
        message = (
            f"{locate(survey)}: {world.env_id} ends after {counted(inside, 'replayed step')} that "
            f"{'is' if inside == 1 else 'are'} not marked terminal, and the data go on: values would go on beyond the "
            "end."
        )
        fix = "Were boundaries lost, or was it recorded under another rule (terminate_when_unhealthy=False)?"
        yield Finding("warning", "missed-terminals", message, fix)
