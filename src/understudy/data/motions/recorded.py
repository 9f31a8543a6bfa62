"""Recorded datasets as motions: an episode is a clip, observation groups and their segments are channels.

Nothing is known of actions, and nothing is resampled: a row is a step. A store stays mapped.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Segments
from understudy.data.dataset import Dataset
from understudy.data.episode import Array
from understudy.data.formats.readers import open_recording
from understudy.data.motions.arranging import check_patterns, check_weights, clip_settings
from understudy.data.motions.columns import Column, Columns, HeldRows, StoredRows
from understudy.data.motions.motion_set import ClipTable, MotionSet
from understudy.data.motions.settings import MotionSettings
from understudy.data.stores.store import RESIDENT_BUDGET, is_store, observation_rows, open_store

OF_CLIPS = ("fps", "stride", "mirror", "joints", "joint_offsets", "velocities", "quaternions", "up", "layout", "root")
"""Settings that mean nothing to rows of observations."""


def recorded_motions(settings: MotionSettings, segments: Segments) -> MotionSet:
    """The episodes of a dataset, of any kind that can be read."""
    for name in OF_CLIPS:
        if settings.__dict__[name] != type(settings).model_fields[name].get_default(call_default_factory=True):
            raise ConfigError(
                f"motions.{name}",
                "is for clips of joints and bodies; a recorded dataset has observations",
                do="Leave it out.",
            )
    path = Path(settings.path)
    if is_store(path):
        return _of_store(open_store(path), settings, segments)
    return _of_recording(settings, segments)


def _of_store(dataset: Dataset, settings: MotionSettings, segments: Segments) -> MotionSet:
    index = dataset.index
    starts = torch.from_numpy(index.starts + np.arange(len(index.starts)))
    lengths = torch.from_numpy(index.lengths + index.final_known)
    named = {
        group: {**dataset.spec.segments.get(group, {}), **segments.get(group, {})} for group in dataset.observations
    }
    flat = {name: values for name, values in dataset.observations.items() if values.ndim == 2}
    rows: dict[str, HeldRows | StoredRows] = {name: HeldRows(values) for name, values in flat.items()}
    if sum(values.nbytes for values in flat.values()) > RESIDENT_BUDGET:
        file = observation_rows(Path(settings.path), dataset)
        rows = {
            name: StoredRows(partial(file.stretches, f"observation.{name}"), values) for name, values in flat.items()
        }
    columns = Columns(_columns(rows, named, f"motions '{settings.path}'"), dataset.release)
    return _motions(columns, starts, lengths, settings, dataset.fingerprint)


def _of_recording(settings: MotionSettings, segments: Segments) -> MotionSet:
    """Observations are read into memory; nothing else is kept."""
    where = f"motions '{settings.path}'"
    parts: dict[str, list[Array]] = {}
    lengths = []
    for number, episode in enumerate(open_recording(settings.path).episodes()):
        read = {
            name: _observed(values, f"{where}, episode {number}, {name}")
            for name, values in episode.observations.items()
        }
        for name, array in read.items():
            parts.setdefault(name, []).append(array)
        shapes = {name: arrays[0].shape[1:] for name, arrays in parts.items()}
        if {name: array.shape[1:] for name, array in read.items()} != shapes:
            raise DataError(f"{where}, episode {number}", "other observations than the episodes before it")
        lengths.append(len(next(iter(read.values()))))
    if not parts:
        raise DataError(where, "has no episodes")
    rows = {
        name: HeldRows(torch.from_numpy(np.concatenate(arrays)))
        for name, arrays in parts.items()
        if arrays[0].ndim == 2
    }
    total = torch.tensor(lengths)
    return _motions(Columns(_columns(rows, segments, where)), total.cumsum(0) - total, total, settings, "")


def _observed(values: Array, where: str) -> Array:
    """[n, …] in float32, or as bytes."""
    array = np.asarray(values)
    array = array if array.dtype == np.uint8 else array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{where}, row {np.argwhere(~np.isfinite(array))[0][0]}", "not finite")
    return array


def _columns(groups: Mapping[str, HeldRows | StoredRows], segments: Segments, where: str) -> dict[str, Column]:
    """Flat groups, and the named parts of each."""
    if not groups:
        raise DataError(where, "has no flat observations")
    columns = {name: Column(rows, _numbered(rows.values.shape[1])) for name, rows in groups.items()}
    for name, rows in groups.items():
        for part, (first, stop) in segments.get(name, {}).items():
            size = rows.values.shape[1]
            if not 0 <= first < stop <= size:
                got, expected = f"{first} to {stop}", f"0 to {size}"
                raise DataError(f"{where}, {name}.{part}", "not a range of its columns", got=got, expected=expected)
            columns[f"{name}.{part}"] = Column(rows, _numbered(stop - first), choice=slice(first, stop))
    return columns


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _motions(columns: Columns, starts: Tensor, lengths: Tensor, settings: MotionSettings, content: str) -> MotionSet:
    names = tuple(f"episode {number}" for number in range(len(starts)))
    if settings.clips:
        check_patterns(settings, names)
    said = [clip_settings(name, settings) for name in names] if settings.clips else []
    for pattern, one in settings.clips.items():
        if {"start", "end", "stride", "mirror"} & one.model_fields_set:
            raise ConfigError(
                f"motions.clips.{pattern}", "episodes of a recorded dataset have only a weight and a loop"
            )
    loops = [settings.loop if one.loop is None else one.loop for one in said] or [settings.loop] * len(names)
    weights = [one.weight for one in said] or [1.0] * len(names)
    check_weights(weights)
    table = ClipTable(
        names,
        starts,
        lengths,
        torch.tensor([loop is True for loop in loops]),
        torch.tensor(weights, dtype=torch.float64),
        torch.zeros(len(names), 3),
        optional=True,
    )
    step = math.nan if settings.step is None else settings.step
    return MotionSet(settings.path, columns, table, step=step, content=content)
