"""Success: whether an episode reached what it was played for, as its environment told or as its end shows.

told         the flag `episode_success`, where it was recorded; else `is_success` (Fetch, and what Stable-Baselines3
             reads) as it stands in the last step, else `success` (AntMaze, Adroit, Meta-World) if it was ever there
terminated   whoever reached the end that ends an episode succeeded: a goal
truncated    whoever was still there at the time limit succeeded: nobody fell
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.data.episode import Episode
from understudy.data.index import EpisodeIndex
from understudy.data.recording import Recording

SuccessRule = Literal["told", "terminated", "truncated"]
Outcome = Literal["successful", "failed"]
SUCCESS: dict[str, Literal["final", "max"]] = {"is_success": "final", "success": "max"}
"""Looked for in what every environment tells, and how each is summed up."""
FLAG = "episode_success"
"""A column of steps, the same in all of an episode: it succeeded."""


def succeeded(told: Mapping[str, NDArray[np.float64]]) -> bool:
    """By what was told of every step of an episode [n], NaN where nothing was; the first name that is there decides."""
    for name, values in told.items():
        known = values[~np.isnan(values)]
        return bool(len(known)) and bool((known[-1] if SUCCESS[name] == "final" else known.max()) > 0)
    return False


def episode_successes(
    columns: Mapping[str, NDArray[Any]], index: EpisodeIndex, rule: SuccessRule, where: str
) -> NDArray[np.bool_]:
    """Which episodes succeeded [E]; `columns` [steps, …] are further ones of steps."""
    if rule != "told":
        return index.terminated.copy() if rule == "terminated" else index.truncated & ~index.terminated
    for name in (FLAG, *SUCCESS):
        if name in columns and columns[name].ndim == 1:
            if SUCCESS.get(name, "final") == "final":
                return np.asarray(columns[name][index.ends - 1] > 0)
            return np.asarray(np.maximum.reduceat(columns[name], index.starts) > 0)
    raise DataError(
        where,
        "tells nothing of success",
        got=f"columns {sorted(columns)}",
        expected=f"{FLAG}, {' or '.join(SUCCESS)}",
        do="Say what success is: success_is=terminated (a goal was reached) or truncated (nobody fell).",
    )


def recorded_successes(recording: Recording, rule: SuccessRule) -> NDArray[np.bool_]:
    """The same of a stream of episodes, of which only ends and flags are kept."""
    kept = [
        Episode({}, np.empty(len(one)), np.empty(0), one.terminated, one.truncated, one.final_known, extra=_flags(one))
        for one in recording.episodes()
    ]
    names = set.intersection(*(set(one.extra) for one in kept)) if kept else set()
    columns = {name: np.concatenate([np.asarray(one.extra[name]) for one in kept]) for name in names}
    return episode_successes(columns, EpisodeIndex.of(kept), rule, f"dataset '{recording.name}'")


def _flags(episode: Episode) -> dict[str, Any]:
    return {name: np.array(episode.extra[name]) for name in (FLAG, *SUCCESS) if name in episode.extra}
