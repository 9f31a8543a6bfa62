"""A finished store becomes a recording again, so that episodes can be appended to it.

The journal and the card of a recording are written beside the store's files; then its manifest goes, and from there on
it is an unfinished recording that holds every episode of the store. Whoever is killed before leaves a store, whoever is
killed later a recording that the next recorder takes up: never anything between.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DataError
from understudy.core.files import sync_directory, write_bytes
from understudy.core.lock import lock_folder, release
from understudy.data.dataset import Dataset
from understudy.data.episode import Array, Precision
from understudy.data.stores.journal import JOURNAL, Entry, StoreLayout, write_journal_card
from understudy.data.stores.store import INDEX, MANIFEST, open_store


def reopen_store(path: Path, recipe: Mapping[str, Any], *, precision: Precision = "float32", env: str = "") -> None:
    """Make a store a recording that `Recorder(path, …)` of the same recipe, precision and environment takes up."""
    where = f"dataset '{path}'"
    handle = lock_folder(path, DataError, where, "Wait for it, stop it, or choose another name.")
    try:
        dataset = open_store(path)
        if not dataset.has_rewards:
            raise DataError(where, "has no rewards, and what is appended has some")
        columns = {name: column for name, column in sorted(dataset.columns().items()) if name not in INDEX}
        layout = StoreLayout(
            dataset.spec, {name: (column.dtype.name, column.shape[1:]) for name, column in columns.items()}
        )
        entries = _entries(dataset, columns)
        write_bytes(path / JOURNAL, b"".join(entry.line() for entry in entries))
        write_journal_card(
            path, layout, {"recipe": dict(recipe), "precision": precision} | ({"env": env} if env else {})
        )
        sync_directory(path)
        (path / MANIFEST).unlink()
        sync_directory(path)
    finally:
        release(handle)


def _entries(dataset: Dataset, columns: Mapping[str, Array]) -> list[Entry]:
    """What a recorder's journal would say of the episodes."""
    index, entries = dataset.index, []
    for number, length in enumerate(index.lengths.tolist()):
        first, checksum = int(index.starts[number]), 0
        for name, column in columns.items():
            slots = name == "mask" or name.startswith("observation.")
            rows = column[first + number * slots :][: length + slots]
            checksum = zlib.crc32(np.ascontiguousarray(rows).data.cast("B"), checksum)
        terminated, truncated, known = (bool(flags[number]) for flags in list(index.arrays().values())[1:])
        entries.append(Entry(length, terminated, truncated, known, checksum))
        if number % 64 == 0:
            dataset.release()
    return entries
