"""The native store: a folder of memory-mapped .npy columns and a sealed manifest.

Larger than memory is normal: columns are mapped, never read whole, and pages that sampling touched are
handed back to the system before they add up.
"""

import mmap
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from understudy.core.errors import DataError, UnderstudyError
from understudy.core.files import publish_directory, read_sealed, seal, sha256_file, sync_directory, write_new
from understudy.core.spec import Spec
from understudy.data.dataset import Dataset, EpisodeIndex
from understudy.data.episode import Array

FORMAT = 1
MANIFEST = "manifest.json"
RESIDENT_BUDGET = 256 << 20
"""Bytes of mapped pages that sampling may keep resident."""
FAULT_BYTES = 1 << 16
"""The kernel maps about this much around each touched page."""


def write_store(dataset: Dataset, path: Path, recipe: Mapping[str, Any] | None = None) -> Path:
    """Write `dataset` as a new store at `path`; the folder appears whole or not at all."""
    if path.exists():
        raise DataError(str(path), "already exists", do="Choose another name or remove it first.")
    for name in dataset.spec.observation:
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise DataError(f"observation group '{name}'", "cannot be a file name", expected="letters, digits and _")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.mkdir(exist_ok=True)
    columns = {}
    for name, column in dataset.columns().items():
        file = draft / f"{name}.npy"
        np.save(file, column, allow_pickle=False)
        columns[name] = {"dtype": column.dtype.name, "shape": list(column.shape), "sha256": sha256_file(file)}
    manifest = {
        "format": FORMAT,
        "kind": "understudy dataset",
        "spec": dataset.spec.to_json(),
        "columns": columns,
        "fingerprint": dataset.fingerprint,
        "recipe": dict(recipe) if recipe is not None else {},
    }
    write_new(draft / MANIFEST, seal(manifest))
    sync_directory(draft)
    publish_directory(draft, path)
    return path


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
    spec = Spec.from_json(f"dataset '{path}'", manifest["spec"])
    names = [f"observation.{group}" for group in sorted(spec.observation)]
    names += ["action", "reward", "lengths", "terminated", "truncated", "final_known"]
    columns = {name: _open_column(path, name, manifest["columns"].get(name, {}), verify) for name in names}
    index = EpisodeIndex(*(np.array(columns[name]) for name in ("lengths", "terminated", "truncated", "final_known")))
    _check_layout(path, columns, index)
    mapped = [columns[name] for name in names[:-4]]
    residency = Residency([column for column in mapped if isinstance(column, np.memmap)])
    return Dataset(
        spec,
        {group: torch.from_numpy(columns[f"observation.{group}"]) for group in spec.observation},
        torch.from_numpy(columns["action"]),
        torch.from_numpy(columns["reward"]),
        index,
        name=str(path),
        fingerprint=str(manifest["fingerprint"]),
        after_rows=residency.note if residency.needed else None,
    )


@final
class Residency:
    """Hands mapped pages back before they add up to `RESIDENT_BUDGET`.

    A random row costs one fault per column, and each fault maps its neighbours too, so a few thousand
    batches would make the whole file resident. Dropping clean pages is free; the page cache keeps them.
    """

    def __init__(self, columns: list["np.memmap[Any, Any]"]) -> None:
        self._maps = [column._mmap for column in columns]  # type: ignore[attr-defined]
        self.needed = sum(column.nbytes for column in columns) > RESIDENT_BUDGET
        self._bytes_per_row = FAULT_BYTES * (len(columns) + 1)
        self._touched = 0

    def note(self, rows: int) -> None:
        self._touched += rows * self._bytes_per_row
        if self._touched >= RESIDENT_BUDGET:
            self._touched = 0
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)


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


def _check_layout(path: Path, columns: Mapping[str, Array], index: EpisodeIndex) -> None:
    steps, episodes = int(index.lengths.sum()), len(index.lengths)
    expected = {"action": steps, "reward": steps}
    expected |= {name: steps + episodes for name in columns if name.startswith("observation.")}
    for name, rows in expected.items():
        if len(columns[name]) != rows:
            raise DataError(f"dataset '{path}', column '{name}'", "wrong length", got=len(columns[name]), expected=rows)
