"""Packed files: a store in one small .npz, compressed, each observation once.

The arrays are the columns of a store under their own names, episodes one behind the other with their final
observations, so that nothing is there twice and everything is exact; NumPy reads them, too. Beside them `about` is JSON
text with the spec, the environment's name, and whether there are rewards.
"""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from understudy.core.drafts import new_file
from understudy.core.errors import DataError
from understudy.core.spec import Spec
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.columns import FileColumn
from understudy.data.index import EpisodeIndex
from understudy.data.recording import NO_REWARDS, Recording, environment_name
from understudy.data.stores.npy import npy_header
from understudy.data.stores.store import INDEX, check_columns, check_layout, check_names

ABOUT = "about"
"""A member of our own files: JSON text, of flat ones with the action space and the environment's name."""
LAYOUT, FORMAT = "packed store", 1
LEVEL = 9
"""Of compression: such a file is written once and carried about."""


def write_packed(dataset: Dataset, path: Path) -> None:
    """Write `dataset` as a new file at `path`; it appears whole or not at all. Read it back with `open_npz`."""
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    check_names([*dataset.spec.observation, *dataset.extra], f"dataset '{dataset.name}'")
    rewards = {} if dataset.has_rewards else NO_REWARDS
    facts = {"format": FORMAT, "layout": LAYOUT, "spec": dataset.spec.to_json(), "env": dataset.env, **rewards}
    with new_file(path) as draft, draft.open("wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            for name, column in dataset.columns().items():
                with archive.open(_member(name), "w", force_zip64=True) as target:
                    target.write(npy_header(column.dtype, column.shape))
                    for block in dataset.blocks(column):
                        target.write(block.tobytes())
            with archive.open(_member(ABOUT), "w") as target:
                npy_format.write_array(target, np.array(json.dumps(facts, sort_keys=True)), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _member(name: str) -> zipfile.ZipInfo:
    """Of no day, so that the same dataset gives the same bytes."""
    member = zipfile.ZipInfo(f"{name}.npy")
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def is_packed(about: Mapping[str, Any]) -> bool:
    return about.get("layout") == LAYOUT


def packed_recording(columns: Mapping[str, FileColumn], about: Mapping[str, Any], name: str) -> Recording:
    """The episodes in the columns of a packed file; they are read as they are needed."""
    where = f"dataset '{name}'"
    if about.get("format") != FORMAT:
        raise DataError(where, "written in another format", got=about.get("format"), expected=FORMAT)
    spec = Spec.from_json(where, about.get("spec"))
    check_columns(spec, columns, where)
    for part, column in columns.items():
        if not column.shape:
            raise DataError(f"{where}, column '{part}'", "a single number where rows belong")
    index = EpisodeIndex(*(np.asarray(columns[part][:]) for part in INDEX))
    rows = {part: column for part, column in columns.items() if part not in INDEX}
    check_layout(where, spec, rows, index)

    def play() -> Iterator[Episode]:
        for number in range(len(index.lengths)):
            yield _episode(number, spec, rows, index)

    return Recording(
        name,
        int(index.ends[-1]),
        play,
        spec.action,
        LAYOUT,
        environment_name(about.get("env")),
        facts=NO_REWARDS if about.get("rewards") == NO_REWARDS["rewards"] else {},
    )


def _episode(number: int, spec: Spec, columns: Mapping[str, FileColumn], index: EpisodeIndex) -> Episode:
    """As a store lays it out: a slot more than steps, which nobody reads where the final observation is not known."""
    known = bool(index.final_known[number])
    steps = slice(int(index.starts[number]), int(index.ends[number]))
    slots = slice(steps.start + number, steps.stop + number + known)
    return Episode(
        {group: columns[f"observation.{group}"][slots] for group in spec.observation},
        columns["action"][steps],
        columns["reward"][steps],
        bool(index.terminated[number]),
        bool(index.truncated[number]),
        known,
        columns["mask"][slots] if "mask" in columns else None,
        {name.removeprefix("extra."): columns[name][steps] for name in columns if name.startswith("extra.")},
    )
