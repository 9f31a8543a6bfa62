"""What people hold in their hands as a recording: a dict of arrays, a pandas DataFrame, a dataset, a list of episodes.

A dict has the columns of a flat file under the same names (`columns.NAMES`), or one whole episode; groups are a dict
under `observations`, further columns a dict under `extra`. A key that is neither is an error: a misspelt `reward_`
would otherwise be read as no rewards at all.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from understudy.core.errors import DataError, did_you_mean
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, as_array
from understudy.data.formats.column_map import ColumnMap, plan_columns
from understudy.data.formats.columns import NAMES, RENAMED, FileColumn
from understudy.data.formats.episode_lists import episodes_from
from understudy.data.formats.flat import flat_recording
from understudy.data.recording import Recording

if TYPE_CHECKING:
    import pandas as pd


KNOWN = {name: role for role, names in NAMES.items() for name in names}
NESTED = ("observations", "next_observations")


def open_held(data: object, *, columns: ColumnMap = "", episode_steps: int | None = None, name: str = "") -> Recording:
    """A recording of what is in memory already; nothing is copied before it is read."""
    if isinstance(data, Dataset):
        _refuse_map(columns, "a Dataset")
        return data.recording()
    if is_frame(data):
        return _frame_recording(data, columns, episode_steps, name or "DataFrame")
    if isinstance(data, Mapping):
        return _dict_recording(data, columns, episode_steps, name or "arrays")
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        _refuse_map(columns, "a list of episodes")
        return episodes_from(data, name or "episodes")
    raise DataError(
        "data",
        "not something that holds experience",
        got=type(data).__name__,
        expected="a path, a Dataset, a dict of arrays, a DataFrame, or a list of episodes",
    )


def is_frame(data: object) -> "TypeGuard[pd.DataFrame]":
    """Whoever has a DataFrame has imported pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _refuse_map(columns: ColumnMap, what: str) -> None:
    if columns:
        raise DataError("columns", f"{what} has no columns to be named", do="Leave columns out.")


def _frame_recording(frame: "pd.DataFrame", words: ColumnMap, episode_steps: int | None, name: str) -> Recording:
    import pandas as pd

    where = f"dataset '{name}'"
    names = [str(column) for column in frame.columns]
    if not len(frame):
        raise DataError(where, "has no rows")
    plan = plan_columns(words, names, where)
    arrays: dict[str, FileColumn] = {}
    for column in plan.read:
        series = frame.iloc[:, names.index(column)]
        arrays[column] = (
            pd.factorize(series, use_na_sentinel=False)[0]
            if column in plan.labels
            else _numbers(series, f"{where}, column '{column}'")
        )
    return flat_recording(plan.arrange(arrays, where), name, where, notes=plan.notes, episode_steps=episode_steps)


def _numbers(series: "pd.Series[Any]", where: str) -> Array:
    """Numbers, nullable ones too (a gap is NaN); cells that hold arrays are stacked."""
    try:
        if series.dtype == object and isinstance(series.iloc[0], Sequence | np.ndarray):
            return as_array(np.stack([np.asarray(cell) for cell in series]), where)
        kept = series.to_numpy()
        return as_array(kept if kept.dtype.kind in "fiub" else series.to_numpy(np.float64, na_value=np.nan), where)
    except (ValueError, TypeError) as error:
        raise DataError(where, f"not numeric ({error})", got=series.dtype, expected="numbers") from error


def _dict_recording(data: Mapping[Any, Any], words: ColumnMap, episode_steps: int | None, name: str) -> Recording:
    where = f"dataset '{name}'"
    if not words and _is_one_episode(data, where):
        return episodes_from([data], name)
    arrays = _arrays(data, where, strict=not words)
    notes: tuple[str, ...] = ()
    if words:
        plan = plan_columns(words, list(arrays), where)
        for label in plan.labels:
            arrays[label] = np.unique(arrays[label], return_inverse=True)[1]
        columns, notes = plan.arrange(arrays, where), plan.notes
    else:
        columns = {key: _vectors(key, array) for key, array in arrays.items()}
    return flat_recording(columns, name, where, notes=notes, episode_steps=episode_steps)


def _arrays(data: Mapping[Any, Any], where: str, *, strict: bool) -> dict[str, Array]:
    """By name; members of a dict under a key are `key/member`."""
    arrays: dict[str, Array] = {}
    for key, value in data.items():
        if not isinstance(key, str):
            raise DataError(where, "not the name of a column", got=repr(key), expected="a string")
        known = key in KNOWN or key in RENAMED or key == "extra"
        if strict and not known and not key.startswith(tuple(f"{word}/" for role in NESTED for word in NAMES[role])):
            raise DataError(
                where,
                f"no column is called '{key}'",
                do=f"{did_you_mean(key, KNOWN)} Further columns stand in a dict under 'extra'; other names are told "
                "with columns={'obs': …}.",
            )
        if isinstance(value, Mapping):
            arrays |= {f"{key}/{inner}": _array(part, f"{where}, {key}/{inner}") for inner, part in value.items()}
        elif value is not None:
            arrays[key] = _array(value, f"{where}, {key}")
    return arrays


def _array(value: object, where: str) -> Array:
    array = np.asarray(value)
    return array if array.dtype.kind in "UM" and array.ndim == 1 else as_array(value, where)


def _vectors(name: str, array: Array) -> Array:
    """Observations of one number are vectors of one."""
    observed = KNOWN.get(name.split("/", maxsplit=1)[0]) in NESTED
    return array[:, None] if observed and array.ndim == 1 else array


def _is_one_episode(data: Mapping[Any, Any], where: str) -> bool:
    """One observation more than actions; its ends may be single flags, so it is asked before all else."""
    rows = {}
    for name, value in data.items():
        if (role := KNOWN.get(name) if isinstance(name, str) else None) in {"observations", "actions"}:
            first = next(iter(value.values()), ()) if isinstance(value, Mapping) else value
            rows[role] = len(as_array(first, f"{where}, {name}"))
    return len(rows) == 2 and rows["observations"] == rows["actions"] + 1
