"""Parquet files as recordings: a row per step, numbers or vectors of one length in each column.

Files are read batch by batch, and only the columns that are needed. What a file declares is compared with what such a
file can honestly hold before anything is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DataError, MissingPackageError
from understudy.data.episode import Array
from understudy.data.formats.column_map import ColumnMap, ColumnPlan, plan_columns
from understudy.data.formats.columns import FileColumn
from understudy.data.formats.flat import flat_recording
from understudy.data.formats.hdf5_column import check_unfolded, unfold_limit
from understudy.data.formats.table_rows import TableRows, label_numbers
from understudy.data.recording import Recording, open_at_once

MAGIC = b"PAR1"
BATCH_ROWS = 4096
UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError, MemoryError, OverflowError)
"""What pyarrow raises on damaged files, besides its own errors."""


def open_parquet(
    path: Path, columns: ColumnMap = "", *, episode_steps: int | None = None, one_episode: bool = False
) -> Recording:
    """The recording in one file. `one_episode`: where nothing marks an end, the file is one."""
    where = f"dataset '{path}'"
    plan, arrays = read_parquet([path], lambda names: plan_columns(columns, names, where), where)
    return flat_recording(
        plan.arrange(arrays, where),
        path.name,
        where,
        notes=plan.notes,
        episode_steps=episode_steps,
        one_episode=one_episode,
    )


def read_parquet(
    files: Sequence[Path], choose: Callable[[list[str]], ColumnPlan], where: str
) -> tuple[ColumnPlan, dict[str, FileColumn]]:
    """The chosen columns [n, …] of files with the same columns, one behind the other."""
    pa, pq = _pyarrow(where)
    with _told(pa, where):
        plan = choose(_column_names(pq, files[0], where))
        if not plan.parts:  # nothing but the names was asked for
            return plan, {}
        table: TableRows | None = None
        widths: dict[str, tuple[int, ...]] = {}
        labels: dict[str, dict[object, int]] = {name: {} for name in plan.labels}
        rows, size = _declared(pq, files, where), sum(file.stat().st_size for file in files)
        for batch in _batches(pq, files, plan.read, where):
            block = {name: _block(pa, batch, name, labels, f"{where}, column '{name[:100]}'") for name in plan.read}
            if table is None:
                widths = {name: values.shape[1:] for name, values in block.items()}
                record = np.dtype([(f"c{i}", block[name].dtype, widths[name]) for i, name in enumerate(plan.read)])
                check_unfolded(rows * record.itemsize, unfold_limit(size), where)
                table = TableRows(record)
            table.append(_records(block, widths, record, where))
    if table is None:
        raise DataError(where, "has no rows")
    found = table.columns()
    return plan, {name: found[f"c{i}"] for i, name in enumerate(plan.read)}


def _records(
    block: Mapping[str, Array], widths: Mapping[str, tuple[int, ...]], record: np.dtype[Any], where: str
) -> Array:
    rows = np.empty(len(next(iter(block.values()))), record)
    for i, (name, values) in enumerate(block.items()):
        if values.shape[1:] != widths[name] or values.dtype != record[f"c{i}"].base:
            raise DataError(
                f"{where}, column '{name[:100]}'",
                "its rows differ",
                got=f"{values.dtype} {list(values.shape[1:])}",
                expected=f"{record[f'c{i}'].base} {list(widths[name])}",
            )
        rows[f"c{i}"] = values
    return rows


def _column_names(pq: Any, file: Path, where: str) -> list[str]:
    with _opened(pq, file, where) as parquet:
        return [str(name) for name in parquet.schema_arrow.names]


def _declared(pq: Any, files: Sequence[Path], where: str) -> int:
    rows = 0
    for file in files:
        with _opened(pq, file, where) as parquet:
            rows += max(0, int(parquet.metadata.num_rows))
    return rows


def _batches(pq: Any, files: Sequence[Path], names: Sequence[str], where: str) -> Iterator[Any]:
    for file in files:
        with _opened(pq, file, where) as parquet:
            yield from parquet.iter_batches(BATCH_ROWS, columns=list(names), use_threads=False)


@contextmanager
def _opened(pq: Any, file: Path, where: str) -> Iterator[Any]:
    with open(file, "rb", opener=open_at_once) as content:
        magic = content.read(len(MAGIC))
        if magic != MAGIC:
            raise DataError(where, f"'{file.name}' is not a Parquet file", got=repr(magic), expected=repr(MAGIC))
        content.seek(0)
        with pq.ParquetFile(content) as parquet:
            yield parquet


def _block(pa: Any, batch: Any, name: str, labels: Mapping[str, dict[object, int]], where: str) -> Array:
    """[k, …] numbers of a batch's column."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        raise DataError(where, "no such column in all of its files")
    values = batch.column(place)
    if name in labels:
        return label_numbers(map(str, values.to_pylist()), labels[name])
    return _numbers(pa, values, where)


def _numbers(pa: Any, values: Any, where: str) -> Array:
    """[k] from numbers (a gap is NaN), [k, w, …] from lists of one length."""
    types, kind, rows = pa.types, values.type, len(values)
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        inner = values.flatten()
        if values.null_count or rows == 0 or len(inner) % rows:
            raise DataError(where, "not vectors of one length")
        if not types.is_fixed_size_list(kind) and len(set(np.diff(values.offsets.to_numpy()).tolist())) > 1:
            raise DataError(where, "not vectors of one length")
        parts = _numbers(pa, inner, where)
        return parts.reshape(rows, len(inner) // rows, *parts.shape[1:])
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise DataError(where, "not numeric", got=f"{kind!s:.80}", expected="numbers, or lists of numbers")
    if values.null_count:
        values = values.cast(pa.float64())
    return np.array(values.to_numpy(zero_copy_only=False))


@contextmanager
def _told(pa: Any, where: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, *UNREADABLE) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(where, f"not readable as Parquet ({first:.200})") from error


def _pyarrow(where: str) -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(
            where, "reading Parquet needs pyarrow", do="Run: pip install 'understudy-rl[tables]'"
        ) from error
    return pa, pq
