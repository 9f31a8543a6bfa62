"""Any file or folder of experience as a recording: the kind is read off the content, never off the name alone."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from understudy.core.errors import DataError
from understudy.core.wording import counted
from understudy.data.corruption import corruption_facts, corruptions_in
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Episode
from understudy.data.formats.column_map import ColumnMap, ColumnPlan, plan_columns, plan_observations
from understudy.data.formats.csv_file import SUFFIXES as CSV
from understudy.data.formats.csv_file import open_csv, read_csv
from understudy.data.formats.d3rlpy_file import is_d3rlpy, open_d3rlpy
from understudy.data.formats.d4rl import open_d4rl
from understudy.data.formats.hdf5 import open_hdf5_file
from understudy.data.formats.in_memory import open_held
from understudy.data.formats.lerobot import is_lerobot, open_lerobot
from understudy.data.formats.minari.reader import MINARI_ID, is_minari, open_minari
from understudy.data.formats.npz import open_npz, read_observation_arrays
from understudy.data.formats.parquet_file import open_parquet, read_parquet
from understudy.data.formats.robomimic import is_robomimic, open_robomimic
from understudy.data.ladders import find_level, suggested_level
from understudy.data.recipes import collection_notes
from understudy.data.recording import Recording, open_at_once
from understudy.data.stores.journal import is_unfinished, open_unfinished
from understudy.data.stores.store import is_store, open_store, store_recipe

if TYPE_CHECKING:
    import pandas as pd

Origin = Union[str, Path, Dataset, "pd.DataFrame", Mapping[str, Any], Sequence[Episode | Mapping[str, Any]]]
"""Where experience comes from: a path or Minari id, or something in memory."""
KNOWN = (
    "an .npz, CSV or Parquet file, an HDF5 file (D4RL, d3rlpy, robomimic), a Minari or LeRobot dataset, a store, or a "
    "folder of such files"
)
MAGIC = {b"PK": "npz", b"\x89HDF": "hdf5", b"PAR1": "parquet"}
SUFFIXES = {".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5", ".parquet": "parquet", **dict.fromkeys(CSV, "csv")}
TABLES: dict[str, Callable[[Path, Callable[[list[str]], ColumnPlan], str], Any]] = {
    "csv": read_csv,
    "parquet": lambda path, choose, where: read_parquet([path], choose, where),
}
"""Kinds with a name for each column; columns are chosen by them."""
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
TENSORFLOW = (
    "Nothing small reads it: load it where TensorFlow Datasets is, and save its arrays with numpy.savez, or convert it "
    "to LeRobot's or Minari's format."
)


@dataclass(frozen=True)
class Reading:
    """What a person said of a file."""

    columns: ColumnMap = ""
    episode_steps: int | None = None
    one_episode: bool = False
    """Of one of many files: what marks no end is an episode by itself."""


def check_origin(origin: str, columns: ColumnMap = "") -> None:
    """There is something of this name, and a table has the columns that are asked for, before anything is read."""
    path = Path(origin)
    if not path.exists():
        open_recording(origin)
    if path.is_dir() and not _is_own(path) and not is_lerobot(path):
        path = next((entry for entry in sorted(path.iterdir(), key=in_order) if entry.suffix in SUFFIXES), path)
    if path.is_file() and (kind := _kind(path)[0]) in TABLES:
        where = f"dataset '{path}'"
        TABLES[kind](path, lambda names: ColumnPlan({}, plan_columns(columns, names, where).notes), where)


def read_observations(path: Path, columns: ColumnMap = "") -> Array | dict[str, Array]:
    """Observations for a policy: an .npy file's array, an .npz file's arrays by group, or those columns of a table."""
    if not path.is_file() or (kind := _kind(path)[0]) not in TABLES:
        return read_observation_arrays(path)
    where = f"observations '{path}'"
    plan, arrays = TABLES[kind](path, lambda names: plan_observations(columns, names, where), where)[:2]
    found = plan.arrange(arrays, where)
    return {role.removeprefix("observations/"): np.asarray(column[:]) for role, column in found.items()}


def open_recording(origin: Origin, *, episode_steps: int | None = None, columns: ColumnMap = "") -> Recording:
    """A path, a Minari id, or anything in memory that `open_held` knows.

    `episode_steps` is for flat files, which may mark no end at all; any other kind is cut by `mend`. `columns` tells
    what a table's columns are.
    """
    if not isinstance(origin, (str, Path)):
        return open_held(origin, columns=columns, episode_steps=episode_steps)
    path = Path(origin)
    reading = Reading(columns, episode_steps)
    if path.is_dir():
        return _open_folder(path, reading)
    if path.is_file():
        return _open_file(path, reading)
    if found := find_level(str(origin)):
        ladder, level = found
        return ladder.recording(level)
    if MINARI_ID.fullmatch(str(origin)):
        return open_minari(str(origin))
    expected = f"{KNOWN}, a Minari id, or a dataset that comes with the library (understudy dataset list)"
    raise DataError(f"dataset '{origin}'", "no such file", expected=expected, do=suggested_level(str(origin)))


def _open_folder(path: Path, reading: Reading) -> Recording:
    if is_lerobot(path):
        return open_lerobot(path, reading.columns)
    if _is_own(path) and reading.columns:
        raise DataError(f"dataset '{path}'", "its columns have names already", do="Leave columns out.")
    if is_store(path):
        recording, recipe = open_store(path).recording(), store_recipe(path)
        notes = (*collection_notes(recipe), *(record.sentence() for record in corruptions_in(recipe)))
        return replace(recording, notes=notes, facts={**recording.facts, **corruption_facts(recipe)})
    if is_unfinished(path):
        dataset = open_unfinished(path)
        note = f"an unfinished recording, read as far as it is whole: {counted(dataset.episodes, 'episode')}"
        return replace(dataset.recording(), layout="unfinished store", notes=(note,))
    if is_minari(path):
        return open_minari(path)
    if found := find_level(str(path)):
        ladder, level = found
        return ladder.recording(level)
    return _open_many(path, reading)


def _is_own(path: Path) -> bool:
    """A folder that says itself what its columns are."""
    return is_store(path) or is_unfinished(path) or is_minari(path)


def _open_many(path: Path, reading: Reading) -> Recording:
    """Files of one kind in a folder, one behind the other; each is opened at its turn."""
    where = f"dataset '{path}'"
    files = sorted((entry for entry in path.iterdir() if entry.suffix in SUFFIXES), key=in_order)
    if (path / "dataset_info.json").is_file() and any(".tfrecord" in entry.name for entry in path.iterdir()):
        raise DataError(where, "RLDS is not read", do=TENSORFLOW)
    if not files:
        raise DataError(where, "a folder that holds no dataset", expected=KNOWN)
    kinds = sorted({SUFFIXES[file.suffix] for file in files})
    if len(kinds) > 1:
        raise DataError(where, "a folder of files of several kinds", got=", ".join(kinds), expected="files of one kind")
    each = replace(reading, one_episode=True)
    parts = [replace(_open_file(file, each), play=lambda: iter(())) for file in files]
    if len({part.has_rewards for part in parts}) > 1:
        bare = next(part.name for part in parts if not part.has_rewards)
        raise DataError(where, "some files have rewards and some have none", got=f"none in {bare}")
    spaces, envs = {part.space for part in parts}, {part.env for part in parts}

    def play() -> Iterator[Episode]:
        for file in files:
            yield from _open_file(file, each).episodes()

    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Recording(
        path.name,
        sum(part.steps for part in parts),
        play,
        spaces.pop() if len(spaces) == 1 else None,
        f"{counted(len(files), 'file')}, {parts[0].layout}",
        envs.pop() if len(envs) == 1 else "",
        (f"{counted(len(files), 'file')} read as one dataset, by name.", *notes),
        parts[0].facts,
    )


def in_order(file: Path) -> list[tuple[int, str]]:
    """`day2` comes before `day10`."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", file.name)]


def _kind(path: Path) -> tuple[str, bytes]:
    """What a file is by its first bytes, else by its name, and those bytes."""
    with open(path, "rb", opener=open_at_once) as file:
        start = file.read(8)
    told = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "")
    return told or SUFFIXES.get(path.suffix, ""), start


def _open_file(path: Path, reading: Reading) -> Recording:
    kind, start = _kind(path)
    if path.suffix in PICKLES:
        raise DataError(
            f"dataset '{path}'",
            "refused: a pickle may run any code when it is read",
            do="Where you trust it, load it and save its arrays with numpy.savez.",
        )
    if ".tfrecord" in path.name:
        raise DataError(f"dataset '{path}'", "TFRecord is not read", do=TENSORFLOW)
    steps, columns, one = reading.episode_steps, reading.columns, reading.one_episode
    if kind == "npz":
        return open_npz(path, episode_steps=steps, columns=columns, one_episode=one)
    if kind == "csv":
        return open_csv(path, columns, episode_steps=steps, one_episode=one)
    if kind == "parquet":
        return open_parquet(path, columns, episode_steps=steps, one_episode=one)
    if kind == "hdf5":
        return _open_hdf5(path, reading)
    raise DataError(f"dataset '{path}'", "unknown kind of file", got=repr(start), expected=KNOWN)


def _open_hdf5(path: Path, reading: Reading) -> Recording:
    with open_hdf5_file(path) as root:
        d3rlpy, robomimic = is_d3rlpy(root), is_robomimic(root)
    if robomimic:
        return open_robomimic(path, reading.columns)
    if d3rlpy:
        return open_d3rlpy(path)
    return open_d4rl(
        path, episode_steps=reading.episode_steps, columns=reading.columns, one_episode=reading.one_episode
    )
