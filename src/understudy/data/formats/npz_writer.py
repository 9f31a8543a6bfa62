"""Datasets as .npz files that others can read: flat rows with the names of D4RL, and what it takes to read them back.

Beside `observations`, `actions`, `rewards`, `terminals`, `timeouts` and `next_observations` there are `episode_id`, and
`final_known`, which is False in the rows whose `next_observations` was never recorded and repeats the observation.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from understudy.core.drafts import new_file
from understudy.core.errors import DataError
from understudy.core.spec import space_json
from understudy.data.dataset import Dataset
from understudy.data.episode import COLUMN_NAME, Array
from understudy.data.formats.columns import NAMES, RENAMED
from understudy.data.formats.packed import ABOUT
from understudy.data.stores.npy import npy_header

BLOCK_ROWS = 1 << 14
Rows = NDArray[np.int64]
TAKEN = {name for names in NAMES.values() for name in names} | set(RENAMED) | {ABOUT, "indices", "split"}


@dataclass(frozen=True)
class ArrayToWrite:
    """An array to write: `take(steps)` gives the rows of some steps."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    take: Callable[[Rows], Array]


def write_npz(dataset: Dataset, path: Path) -> None:
    """Write `dataset` as a new file at `path`; it appears whole or not at all. Read it back with `open_npz`."""
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    members = _members(dataset)
    with new_file(path) as draft, draft.open("wb") as file:
        _write_archive(dataset, members, file)
        file.flush()
        os.fsync(file.fileno())


def _members(dataset: Dataset) -> dict[str, ArrayToWrite]:
    for name in (*dataset.observations, *dataset.extra):
        if not COLUMN_NAME.fullmatch(name):
            raise DataError(f"dataset '{dataset.name}'", "a column's name cannot be written", got=repr(name))
    columns, index = dataset.columns(), dataset.index

    def slots(steps: Rows) -> Rows:
        return steps + np.searchsorted(index.ends, steps, side="right")

    def at_slots(column: Array, later: int) -> ArrayToWrite:
        return ArrayToWrite(
            column.dtype, (dataset.steps, *column.shape[1:]), lambda steps: column[slots(steps) + later]
        )

    def at_steps(column: Array) -> ArrayToWrite:
        return ArrayToWrite(column.dtype, column.shape, lambda steps: column[steps])

    def at_ends(flags: Array, elsewhere: bool) -> ArrayToWrite:
        rows = np.full(dataset.steps, elsewhere)
        rows[index.ends - 1] = flags
        return at_steps(rows)

    members = {}
    known = bool(index.final_known.any())
    for group in dataset.observations:
        tail = "" if list(dataset.observations) == ["state"] else f"/{group}"
        members[f"observations{tail}"] = at_slots(columns[f"observation.{group}"], 0)
        if known:
            members[f"next_observations{tail}"] = at_slots(columns[f"observation.{group}"], 1)
    members["actions"] = at_steps(columns["action"])
    if dataset.has_rewards:
        members["rewards"] = at_steps(columns["reward"])
    members |= {"terminals": at_ends(index.terminated, False), "timeouts": at_ends(index.truncated, False)}
    members["episode_id"] = at_steps(np.repeat(np.arange(dataset.episodes), index.lengths))
    if known:
        members["final_known"] = at_ends(index.final_known, True)
    if "mask" in columns:
        members |= {"action_mask": at_slots(columns["mask"], 0), "next_action_mask": at_slots(columns["mask"], 1)}
    for name in dataset.extra:
        members[_extra_name(name, dataset.extra[name].ndim)] = at_steps(columns[f"extra.{name}"])
    return members


def _extra_name(name: str, dimensions: int) -> str:
    """Its own name, unless that would mean something else to a reader."""
    plain = name not in TAKEN and dimensions <= 2 and not name.startswith(("extra", "infos", "metadata"))
    return name if plain else f"extra/{name}"


def _write_archive(dataset: Dataset, members: dict[str, ArrayToWrite], file: IO[bytes]) -> None:
    """Every member in blocks; the same dataset gives the same bytes."""
    facts = {"format": 1, "action": space_json(dataset.spec.action), "env": dataset.env}
    about = np.array(json.dumps(facts, sort_keys=True))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as target:
                target.write(npy_header(member.dtype, member.shape))
                for block in _blocks(dataset.steps):
                    target.write(np.ascontiguousarray(member.take(block)).tobytes())
                    dataset.release()
        with archive.open(zipfile.ZipInfo(f"{ABOUT}.npy"), "w") as target:
            npy_format.write_array(target, about, allow_pickle=False)


def _blocks(steps: int) -> Iterator[Rows]:
    for first in range(0, steps, BLOCK_ROWS):
        yield np.arange(first, min(first + BLOCK_ROWS, steps))
