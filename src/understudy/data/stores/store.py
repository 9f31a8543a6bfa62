"""The native store: a folder of memory-mapped .npy columns and a sealed manifest.

Larger than memory is normal: columns are mapped, never read whole; scans hand their pages back, and batches of
a large store are read row by row.
"""

import mmap
import os
import sys
import weakref
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol, final

import numpy as np
import torch
from torch import Tensor

from understudy.core.arguments import as_kind, as_mapping, as_path
from understudy.core.drafts import new_folder
from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import read_sealed, seal, write_bytes
from understudy.core.spec import AXES, LARGEST, Box, Discrete, Spec, recordable
from understudy.data.assemble import check_action_bounds
from understudy.data.dataset import Dataset, Pager
from understudy.data.episode import COLUMN_NAME, Array
from understudy.data.fingerprint import ColumnFacts, fingerprint
from understudy.data.index import EpisodeIndex
from understudy.data.recording import NO_REWARDS, environment_name
from understudy.data.stores.npy import Judge, map_column, write_column

FORMAT = 2
MANIFEST = "manifest.json"
INDEX = ("lengths", "terminated", "truncated", "final_known")
RESIDENT_BUDGET = 512 << 20
"""A store up to this size is mapped and may become resident as a whole; rows of a larger one are read singly."""
KEPT_BYTES = 256 << 20
"""Columns of a large store that are small, rewards first of all, are kept in memory up to this size together."""
DTYPES = {"uint8", "int32", "int64", "float32", "float64", "bool"}


class ColumnShape(Protocol):
    """A column, as far as it can be judged without its numbers."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def write_store(dataset: Dataset, path: Path | str, recipe: Mapping[str, Any] | None = None) -> Path:
    """Write `dataset` as a new store at `path`; the folder appears whole or not at all."""
    dataset, path = as_kind(dataset, Dataset, "write_store"), as_path(path, "write_store")
    recipe = None if recipe is None else as_mapping(recipe, "recipe")
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    check_names([*dataset.spec.observation, *dataset.extra], f"dataset '{dataset.name}'")
    with new_folder(path) as draft:
        columns = {
            name: write_column(draft / f"{name}.npy", column, dataset.blocks(column))
            for name, column in dataset.columns().items()
        }
        write_manifest(draft, dataset.spec, columns, recipe, dataset.env, has_rewards=dataset.has_rewards)
    return path


def write_manifest(
    folder: Path,
    spec: Spec,
    columns: Mapping[str, ColumnFacts],
    recipe: Mapping[str, Any] | None,
    env: str = "",
    *,
    has_rewards: bool = True,
) -> None:
    """The last file of a store: what it holds, sealed."""
    content = {
        "format": FORMAT,
        "kind": "understudy dataset",
        "spec": spec.to_json(),
        "columns": {
            name: {"dtype": facts.dtype, "shape": list(facts.shape), "sha256": facts.sha256}
            for name, facts in columns.items()
        },
        "fingerprint": fingerprint(spec, columns),
        "recipe": dict(recipe) if recipe is not None else {},
        "env": env,
        **({} if has_rewards else NO_REWARDS),
    }
    write_bytes(folder / MANIFEST, seal(content))


def is_store(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def open_store(path: Path, *, verify: bool = True) -> Dataset:
    """Map a store. `verify` reads every file once and compares its digest before anything is used.

    In the same pass numbers are found that no recorder lets in: a seal says who was last, not that he was careful.
    """
    where = f"dataset '{path}'"
    try:
        manifest = read_sealed(path / MANIFEST)
    except UnderstudyError as error:
        raise DataError(where, f"not a readable store ({error})") from error
    if manifest.get("format") != FORMAT:
        raise DataError(where, "written in another format", got=manifest.get("format"), expected=FORMAT)
    spec = Spec.from_json(where, manifest.get("spec"))
    facts = _column_facts(manifest.get("columns"), where)
    check_columns(spec, facts, where)
    for name in sorted({file.name.removesuffix(".npy") for file in path.glob("*.npy")} - facts.keys()):
        raise DataError(f"{where}, column '{name}'", "is not described by the manifest")
    columns = {
        name: map_column(
            path / f"{name}.npy",
            facts[name],
            f"{where}, column '{name}'",
            verify=verify,
            judge=_judge(spec, name, f"{where}, column '{name}'"),
        )
        for name in facts
    }
    index = EpisodeIndex(*(np.array(columns.pop(name)) for name in INDEX))
    check_layout(where, spec, columns, index)
    mapped = {name: column for name, column in columns.items() if isinstance(column, np.memmap)}
    large = sum(column.nbytes for column in mapped.values()) > RESIDENT_BUDGET
    pager = FileRows(path, mapped) if large else None
    env = recorded_env(manifest)
    found = fingerprint(spec, facts)
    dataset = dataset_of(spec, columns, index, str(path), env=env, fingerprint=found, pager=pager)
    dataset.has_rewards = manifest.get("rewards") != NO_REWARDS["rewards"]
    return dataset


def _judge(spec: Spec, name: str, where: str) -> Judge:
    """What rows of a column must be: finite, and actions inside their space."""

    def judge(rows: Array, first: int) -> None:
        if rows.dtype.kind == "f" and not _all_finite(rows):
            place = np.argwhere(~np.isfinite(rows))[0]
            column = f", column {', '.join(map(str, place[1:]))}" if len(place) > 1 else ""
            raise DataError(f"{where}, row {first + place[0]}{column}", "not finite", got=rows[tuple(place)])
        if name == "action" and isinstance(spec.action, Discrete) and rows.ndim == 1:
            wrong = np.flatnonzero((rows < 0) | (rows >= spec.action.count))
            if len(wrong):
                expected = f"0 to {spec.action.count - 1}"
                raise DataError(
                    f"{where}, row {first + wrong[0]}", "no such action", got=rows[wrong[0]], expected=expected
                )
        elif name == "action" and rows.ndim == 2:
            check_action_bounds(rows, spec.action, where)

    return judge


def _all_finite(rows: Array) -> bool:
    """A sum is quicker than a look at each; only one that is not finite needs the look, for it may be too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(rows.sum()) or np.isfinite(rows).all())


def dataset_of(
    spec: Spec,
    columns: Mapping[str, Array],
    index: EpisodeIndex,
    name: str,
    *,
    env: str = "",
    fingerprint: str | None = None,
    pager: Pager | None = None,
) -> Dataset:
    """The dataset in columns that were checked."""
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
    return Dataset(
        spec,
        {group: tensors[f"observation.{group}"] for group in spec.observation},
        tensors["action"],
        tensors["reward"],
        index,
        name=name,
        env=env,
        mask=tensors.get("mask"),
        extra={name.removeprefix("extra."): column for name, column in tensors.items() if name.startswith("extra.")},
        fingerprint=fingerprint,
        pager=pager,
    )


def store_recipe(path: Path) -> dict[str, Any]:
    """The recipe a store was made from; empty if it was not."""
    recipe = read_sealed(path / MANIFEST).get("recipe")
    return recipe if isinstance(recipe, dict) else {}


def recorded_env(facts: Mapping[str, Any]) -> str:
    """The environment in a manifest or card: its own entry, or its recipe's; older ones have neither."""
    recipe = facts.get("recipe")
    return environment_name(facts.get("env") or (recipe.get("env") if isinstance(recipe, dict) else ""))


def _column_facts(entries: object, where: str) -> dict[str, ColumnFacts]:
    try:
        facts = {
            str(name): ColumnFacts(str(entry["dtype"]), tuple(int(n) for n in entry["shape"]), str(entry["sha256"]))
            for name, entry in dict(entries).items()  # type: ignore[call-overload]
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(where, "its manifest does not describe columns", got=repr(error)) from error
    for name, fact in facts.items():
        countable = all(0 <= length <= LARGEST for length in fact.shape)
        if fact.dtype not in DTYPES or not 1 <= len(fact.shape) <= AXES or not countable:
            told = f"{fact.dtype} {list(fact.shape)}"
            raise DataError(f"{where}, column '{name[:100]}'", "cannot be a column", got=told[:100])
    return facts


@final
class FileRows:
    """Rows read one by one from the column files.

    A mapped page would look simpler, but a kernel that keeps files in large folios maps 2 MB around every touched
    row on recent kernels, so one batch of 256 rows made 430 MB of a column resident. Reads leave nothing behind, take a
    small page each from a cold disk, and meet a file that shrank with an error instead of SIGBUS.
    """

    def __init__(self, path: Path, columns: Mapping[str, "np.memmap[Any, Any]"]) -> None:
        self._path = path
        self._columns = dict(columns)
        self._handles = {name: os.open(path / f"{name}.npy", os.O_RDONLY) for name in columns}
        weakref.finalize(self, _close, list(self._handles.values()))
        if sys.platform == "linux":
            for handle in self._handles.values():
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)

    def __reduce__(self) -> NoReturn:
        raise DataError(
            f"dataset '{self._path}'",
            "too large to be sent to another process",
            do="Open its store there, or have workers that are forked (multiprocessing_context='fork').",
        )

    def take(self, name: str, index: Tensor) -> Tensor:
        """Rows `index` [B] of a column."""
        if name in self._kept:
            return self._kept[name].index_select(0, index)
        return torch.from_numpy(self._read(name, index, 1)[:, 0])

    def pairs(self, name: str, index: Tensor) -> tuple[Tensor, Tensor]:
        """Rows `index` [B] of a column and the rows after them, in one read each."""
        if name in self._kept:
            return self._kept[name].index_select(0, index), self._kept[name].index_select(0, index + 1)
        both = torch.from_numpy(self._read(name, index, 2))
        return both[:, 0].contiguous(), both[:, 1].contiguous()

    def stretches(self, name: str, index: Tensor, rows: int) -> Tensor:
        """Rows `index` [B] of a column and those after them [B, rows, …], in one read each."""
        return torch.from_numpy(self._read(name, index, rows))

    @cached_property
    def _kept(self) -> dict[str, Tensor]:
        """The smallest columns, as many as fit: each spares a read per row."""
        kept, room = {}, KEPT_BYTES
        for name in sorted(self._columns, key=lambda name: self._columns[name].nbytes):
            column = self._columns[name]
            room -= column.nbytes
            if room < 0:
                break
            with os.fdopen(self._handles[name], "rb", closefd=False) as file:
                file.seek(column.offset)
                values = np.fromfile(file, column.dtype, column.size)
            self._check_length(name, values.size, column.size)
            kept[name] = torch.from_numpy(values.reshape(column.shape))
        return kept

    def _check_length(self, name: str, length: int, expected: int) -> None:
        if length != expected:
            raise DataError(f"dataset '{self._path}', column '{name}'", "became shorter while it was read")

    def _read(self, name: str, index: Tensor, rows: int) -> Array:
        """`rows` rows from each of `index` on [B, rows, …]."""
        column, handle = self._columns[name], self._handles[name]
        size = column[:1].nbytes
        places = (index * size + column.offset).tolist()
        content = bytearray().join([os.pread(handle, rows * size, place) for place in places])
        self._check_length(name, len(content), rows * size * len(places))
        return np.frombuffer(content, column.dtype).reshape(len(places), rows, *column.shape[1:])

    def release(self) -> None:
        """Hand back pages that a scan of the mapped columns made resident; the page cache keeps them."""
        for column in self._columns.values():
            column._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def observation_rows(path: Path, dataset: Dataset) -> FileRows:
    """The observations of a store that is open as `dataset`, to be read from its files where they lie."""
    columns = {}
    for group, values in dataset.observations.items():
        facts = ColumnFacts(dataset.spec.observation[group].dtype, tuple(values.shape), "")
        name = f"observation.{group}"
        column = map_column(path / f"{name}.npy", facts, f"dataset '{path}', column '{name}'", verify=False)
        assert isinstance(column, np.memmap)  # a dataset has rows
        columns[name] = column
    return FileRows(path, columns)


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


def check_names(names: list[str], where: str) -> None:
    for name in names:
        if not COLUMN_NAME.fullmatch(name):
            raise DataError(where, "a column cannot be a file", got=repr(name), expected="letters, digits, _ and -")


def check_columns(spec: Spec, names: Iterable[str], where: str) -> None:
    """Columns of a file: what the spec needs, optional ones we know, and nothing else."""
    names = set(names)
    extra = [name.removeprefix("extra.") for name in names if name.startswith("extra.")]
    check_names([*spec.observation, *extra], where)
    needed = [f"observation.{group}" for group in sorted(spec.observation)] + ["action", "reward", *INDEX]
    for name in needed:
        if name not in names:
            raise DataError(f"{where}, column '{name}'", "is not described by the manifest")
    for name in sorted(names - {*needed, "mask", *(f"extra.{name}" for name in extra)}):
        raise DataError(f"{where}, column '{name[:100]}'", "is not one we know")


def check_layout(where: str, spec: Spec, columns: Mapping[str, ColumnShape], index: EpisodeIndex) -> None:
    """Episodes add up to the columns, and the columns have the spec's shapes and dtypes."""
    episodes, rows = index.lengths.size, (*columns["reward"].shape, 0)[0]
    for name, array in index.arrays().items():
        kind = np.dtype(np.int64 if name == "lengths" else np.bool_)
        if array.dtype != kind or array.shape != (episodes,):
            raise DataError(f"{where}, column '{name}'", "does not describe episodes")
    # No length beyond the rows there are: a sum of enormous ones could come round to the right number.
    if not episodes or not ((index.lengths > 0) & (index.lengths <= rows)).all():
        raise DataError(f"{where}, column 'lengths'", "does not describe episodes")
    expected = _shapes(spec, columns, int(index.lengths.sum()), episodes)
    for name, column in columns.items():
        if column.shape != expected.get(name):
            raise DataError(f"{where}, column '{name}'", "wrong shape", got=column.shape, expected=expected.get(name))
        if column.dtype.name not in _kinds(spec, name):
            raise DataError(f"{where}, column '{name}'", "wrong kind of numbers", got=column.dtype)


def _shapes(spec: Spec, columns: Mapping[str, ColumnShape], steps: int, episodes: int) -> dict[str, tuple[int, ...]]:
    expected: dict[str, tuple[int, ...]] = {"reward": (steps,)}
    space = recordable(spec.action)
    if isinstance(space, Box):
        expected["action"] = (steps, space.size)
    else:
        expected |= {"action": (steps,), "mask": (steps + episodes, space.count)}
    expected |= {f"observation.{name}": (steps + episodes, *group.shape) for name, group in spec.observation.items()}
    expected |= {name: (steps, *array.shape[1:]) for name, array in columns.items() if name.startswith("extra.")}
    return expected


def _kinds(spec: Spec, name: str) -> set[str]:
    """The dtypes a column may have."""
    if name.startswith("observation."):
        return {spec.observation[name.removeprefix("observation.")].dtype} & {"uint8", "float32", "float64"}
    if name == "mask":
        return {"bool"}
    if name == "reward" or (name == "action" and isinstance(spec.action, Box)):
        return {"float32", "float64"}
    return {"int64"} if name == "action" else DTYPES
