"""Bounds of continuous actions where no environment says them: given by hand, or measured on the data."""

from typing import Annotated

import numpy as np
from pydantic import BeforeValidator

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Box
from understudy.data.episode import Array
from understudy.data.recording import Recording


def _listed(value: object) -> object:
    """`0,0` on a command line is a list."""
    return value.split(",") if isinstance(value, str) and "," in value else value


Bound = Annotated[float | tuple[float, ...], BeforeValidator(_listed)]
"""One number for all dimensions of an action, or one for each."""


def given_box(recording: Recording, low: Bound | None, high: Bound | None, where: str = "action bounds") -> Box | None:
    """Bounds given by hand for a recording's actions; None if none are given."""
    if low is None and high is None:
        return None
    if low is None or high is None:
        raise ConfigError(where, "one of two is missing", got=f"{low} to {high}", expected="low and high")
    first = next(recording.episodes(), None)
    size = 1 if first is None or np.ndim(first.actions) == 1 else np.asarray(first.actions).shape[1]
    lows, highs = ((bound,) * size if isinstance(bound, (int, float)) else tuple(bound) for bound in (low, high))
    if not len(lows) == len(highs) == size:
        got = f"{len(lows)} low and {len(highs)} high"
        raise ConfigError(where, "another number than actions have dimensions", got=got, expected=size)
    if not all(least < most for least, most in zip(lows, highs, strict=True)):
        raise ConfigError(where, "wrong", got=f"{low} to {high}", expected="low below high in every dimension")
    return Box(tuple(map(float, lows)), tuple(map(float, highs)))


def measured_box(recording: Recording) -> Box:
    """The smallest and largest recorded action in every dimension; one that never changes gets 1 on either side."""
    low, high = np.empty(0, np.float32), np.empty(0, np.float32)
    for number, episode in enumerate(recording.episodes()):
        actions = _as_rows(np.asarray(episode.actions), f"dataset '{recording.name}', episode {number}, actions")
        finite = np.isfinite(actions)
        least = np.where(finite, actions, np.inf).min(0, initial=np.inf)
        most = np.where(finite, actions, -np.inf).max(0, initial=-np.inf)
        if low.size and low.shape != least.shape:  # told as a difference between episodes by whoever joins them
            continue
        low, high = (np.minimum(low, least), np.maximum(high, most)) if low.size else (least, most)
    if not low.size or not np.isfinite(low).all():
        raise DataError(f"dataset '{recording.name}'", "has no finite actions to take bounds from")
    still = (low == high).astype(np.float32)
    return Box(tuple((low - still).tolist()), tuple((high + still).tolist()))


def _as_rows(actions: Array, where: str) -> Array:
    """[n, A] in float32, as networks see them."""
    if actions.dtype.kind not in "iuf" or actions.ndim not in (1, 2):
        raise DataError(where, "no numbers [n, A]", got=f"{actions.dtype.name} {list(actions.shape)}")
    with np.errstate(over="ignore"):
        return actions.reshape(len(actions), -1).astype(np.float32)
