"""The native store: a folder of memory-mapped .npy columns and a sealed manifest.

Larger than memory is normal: columns are mapped, never read whole; scans hand their pages back, and batches of
a large store are read row by row.
"""

import hashlib
import mmap
import os
import re
import shutil
import sys
import weakref
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import publish_directory, read_sealed, seal, sha256_file, write_new
from understudy.core.spec import Spec
from understudy.data.dataset import Dataset, EpisodeIndex
from understudy.data.episode import Array

FORMAT = 1
MANIFEST = "manifest.json"
INDEX = ("lengths", "terminated", "truncated", "final_known")
RESIDENT_BUDGET = 512 << 20
"""A store up to this size is mapped and may become resident as a whole; rows of a larger one are read singly."""
GROUP_NAME = re.compile(r"[A-Za-z0-9_]+")
"""Group names become file names, so they may not wander."""


def write_store(dataset: Dataset, path: Path | str, recipe: Mapping[str, Any] | None = None) -> Path:
    """Write `dataset` as a new store at `path`; the folder appears whole or not at all."""
    path = Path(path)
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    _check_group_names(dataset.spec, f"dataset '{dataset.name}'")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.mkdir()
    try:
        _write_draft(dataset, draft, recipe)
        publish_directory(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return path


def _write_draft(dataset: Dataset, draft: Path, recipe: Mapping[str, Any] | None) -> None:
    columns = {}
    for name, column in dataset.columns().items():
        digest = _write_column(draft / f"{name}.npy", column, dataset.blocks(column))
        columns[name] = {"dtype": column.dtype.name, "shape": list(column.shape), "sha256": digest}
    manifest = {
        "format": FORMAT,
        "kind": "understudy dataset",
        "spec": dataset.spec.to_json(),
        "columns": columns,
        "fingerprint": dataset.fingerprint,
        "recipe": dict(recipe) if recipe is not None else {},
    }
    write_new(draft / MANIFEST, seal(manifest))


def _write_column(file: Path, column: Array, blocks: Iterable[Array]) -> str:
    """Stream a column into a new .npy, in bounded memory and durably; the sha256 of the whole file."""
    header = BytesIO()
    layout = {"shape": column.shape, "fortran_order": False, "descr": npy_format.dtype_to_descr(column.dtype)}
    npy_format.write_array_header_1_0(header, layout)
    digest = hashlib.sha256(header.getvalue())
    with file.open("xb") as out:
        out.write(header.getvalue())
        for block in blocks:
            digest.update(block.data)
            out.write(block.data)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def is_store(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def open_store(path: Path, *, verify: bool = True) -> Dataset:
    """Map a store. `verify` reads every file once and compares its digest before anything is used."""
    try:
        manifest = read_sealed(path / MANIFEST)
    except UnderstudyError as error:
        raise DataError(f"dataset '{path}'", f"not a readable store ({error})") from error
    if manifest.get("format") != FORMAT:
        raise DataError(f"dataset '{path}'", "written in another format", got=manifest.get("format"), expected=FORMAT)
    spec = Spec.from_json(f"dataset '{path}'", manifest.get("spec"))
    _check_group_names(spec, f"dataset '{path}'")
    names = [f"observation.{group}" for group in sorted(spec.observation)] + ["action", "reward", *INDEX]
    entries: dict[str, Any] = manifest.get("columns", {})
    _check_inventory(path, names, entries)
    columns = {name: _open_column(path, name, entries[name], verify) for name in names}
    index = EpisodeIndex(*(np.array(columns[name]) for name in INDEX))
    _check_layout(path, spec, columns, index)
    mapped = {name: column for name in names if name not in INDEX and isinstance(column := columns[name], np.memmap)}
    large = sum(column.nbytes for column in mapped.values()) > RESIDENT_BUDGET
    return Dataset(
        spec,
        {group: torch.from_numpy(columns[f"observation.{group}"]) for group in spec.observation},
        torch.from_numpy(columns["action"]),
        torch.from_numpy(columns["reward"]),
        index,
        name=str(path),
        fingerprint=str(manifest.get("fingerprint")),
        pager=FileRows(path, mapped) if large else None,
    )


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

    def take(self, name: str, index: Tensor) -> Tensor:
        """Rows `index` [B] of a column."""
        column, handle = self._columns[name], self._handles[name]
        size = column[:1].nbytes
        places = (index * size + column.offset).tolist()
        content = bytearray().join([os.pread(handle, size, place) for place in places])
        if len(content) != size * len(places):
            raise DataError(f"dataset '{self._path}', column '{name}'", "became shorter while it was read")
        rows = np.frombuffer(content, column.dtype).reshape(len(places), *column.shape[1:])
        return torch.from_numpy(rows)

    def release(self) -> None:
        """Hand back pages that a scan of the mapped columns made resident; the page cache keeps them."""
        for column in self._columns.values():
            column._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


def _check_group_names(spec: Spec, where: str) -> None:
    for name in spec.observation:
        if not GROUP_NAME.fullmatch(name):
            raise DataError(
                where, "observation group cannot be a file name", got=repr(name), expected="letters, digits and _"
            )


def _check_inventory(path: Path, names: list[str], entries: object) -> None:
    """The manifest and the folder hold these columns and no others."""
    listed = entries.keys() if isinstance(entries, dict) else set()
    present = {file.name.removesuffix(".npy") for file in path.glob("*.npy")}
    for name in sorted(set(names) ^ listed) + sorted(present - set(names)):
        story = "is not described by the manifest" if name in names or name in present else "is not one we know"
        raise DataError(f"dataset '{path}', column '{name}'", story)


def _open_column(path: Path, name: str, entry: Mapping[str, Any], verify: bool) -> Array:
    file = path / f"{name}.npy"
    where = f"dataset '{path}', column '{name}'"
    if not file.is_file():
        raise DataError(where, "its file is missing")
    if verify and sha256_file(file) != entry.get("sha256"):
        raise DataError(where, "was changed or damaged after it was written (sha256 differs)")
    try:
        # Copy-on-write: torch wants writable memory, and nothing may ever reach the file.
        column: Array = np.load(file, mmap_mode="c", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(where, f"not a readable .npy file ({error})") from error
    if column.dtype.name != entry.get("dtype") or list(column.shape) != entry.get("shape"):
        raise DataError(
            where,
            "does not match the manifest",
            got=f"{column.dtype.name} {list(column.shape)}",
            expected=f"{entry.get('dtype')} {entry.get('shape')}",
        )
    return column


def _check_layout(path: Path, spec: Spec, columns: Mapping[str, Array], index: EpisodeIndex) -> None:
    """Episodes add up to the columns, and the columns have the spec's shapes."""
    episodes = index.lengths.size
    for name, array in index.arrays().items():
        kind = np.dtype(np.int64 if name == "lengths" else np.bool_)
        if array.dtype != kind or array.shape != (episodes,) or (name == "lengths" and not (array > 0).all()):
            raise DataError(f"dataset '{path}', column '{name}'", "does not describe episodes")
    steps = int(index.lengths.sum())
    expected = {"action": (steps, spec.action.size), "reward": (steps,)}
    expected |= {f"observation.{name}": (steps + episodes, *group.shape) for name, group in spec.observation.items()}
    for name, shape in expected.items():
        if columns[name].shape != shape:
            raise DataError(
                f"dataset '{path}', column '{name}'", "wrong shape", got=columns[name].shape, expected=shape
            )
