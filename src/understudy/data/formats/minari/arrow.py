"""Minari's Arrow storage: a folder per episode, a file of one table in it.

Arrow files are read message by message: a batch that is compressed could unfold to any size and is refused (Minari
writes none), types that carry code or classes of their own are refused, and every offset is validated before use.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DataError, MissingPackageError, UnderstudyError
from understudy.core.files import read_bytes, read_json
from understudy.data.episode import Array, Episode
from understudy.data.formats.hdf5_column import unfold_limit
from understudy.data.formats.minari.episode import build_episode, one_hot_column
from understudy.data.formats.minari.frames import decode_frames
from understudy.data.formats.minari.metadata import Description
from understudy.data.formats.minari.spaces import Leaf

MAGIC = b"ARROW1\0\0"
EXTENSION = b"ARROW:extension:name"
EPISODE_METADATA_LIMIT = 1 << 20
UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError, MemoryError, OverflowError, struct.error)
"""What pyarrow raises on damaged files, besides its own errors."""
COMPRESSION_FIELD = 3
"""Of the RecordBatch table in Arrow's Message.fbs."""


def arrow_episodes(folder: Path, about: Description, where: str) -> list[int]:
    """The steps each episode declares; playing it compares."""
    steps = []
    for number in range(about.episodes):
        place = f"{where}, episode {number}"
        path = folder / str(number) / "metadata.json"
        if path.parent.is_symlink() or path.is_symlink():
            raise DataError(place, "refused: a link to another place", do="Put the files themselves there.")
        if not path.is_file() or path.stat().st_size > EPISODE_METADATA_LIMIT:
            raise DataError(place, "has no readable metadata.json", do="Was the download cut off?")
        try:
            count = read_json(path).get("total_steps")
        except UnderstudyError as error:
            raise DataError(place, f"its metadata.json is not readable ({error})") from error
        if type(count) is not int or not 0 < count <= max(1, _size(path.parent)):
            raise DataError(place, "does not say how many steps it has", got=f"{count!r:.40}")
        steps.append(count)
    return steps


def play_arrow(folder: Path, about: Description, steps: list[int], where: str) -> Iterator[Episode]:
    for number, expected in enumerate(steps):
        place = f"{where}, episode {number}"
        episode = _read_episode(folder / str(number), about, place)
        if len(episode) != expected:
            raise DataError(place, "has another length than its metadata tells", got=len(episode), expected=expected)
        yield episode


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _episode(batch: Any, about: Description, where: str) -> Episode:
    """Rows are observations; the last row's action, reward and flags are padding."""
    names = batch.schema.names
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        if names.count(name) != 1:
            raise DataError(where, f"has no column '{name}'", got=", ".join(names)[:200])
    columns = {
        name: _numbers(batch.column(name), f"{where}, {name}")[:-1]
        for name in ("actions", "rewards", "terminations", "truncations")
    }
    seen = batch.column("observations")
    limit = unfold_limit(batch.nbytes)
    return build_episode(
        {name: _group(seen, leaf, limit, f"{where}, observation '{name}'") for name, leaf in about.leaves.items()},
        columns["actions"],
        columns["rewards"],
        (columns["terminations"], columns["truncations"]),
        about.action,
        where,
        mask=_mask(batch, about.mask, where) if about.mask else None,
    )


def _mask(batch: Any, name: str, where: str) -> Array:
    if "infos" not in batch.schema.names:
        raise DataError(where, f"has no info '{name}'")
    return _numbers(_field(batch.column("infos"), name, where), f"{where}, {name}")


def _group(values: Any, leaf: Leaf, limit: int, where: str) -> Array:
    import pyarrow as pa  # type: ignore[import-untyped]

    for key in leaf.path:
        values = _field(values, key, where)
    if leaf.kind == "choice":
        return one_hot_column(_numbers(values, where), leaf, limit, where)
    if leaf.image and pa.types.is_binary(values.type):
        return decode_frames(len(values), lambda row: values[row].as_py(), leaf.shape, limit, where)
    numbers = _numbers(values, where)
    if numbers.size != len(numbers) * int(np.prod(leaf.shape)):
        raise DataError(where, "wrong shape", got=list(numbers.shape[1:]), expected=list(leaf.shape))
    return numbers.reshape(len(numbers), *leaf.shape)


def _field(values: Any, name: str, where: str) -> Any:
    import pyarrow as pa

    if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
        raise DataError(where, f"has no '{name}'")
    return values.field(name)


def _numbers(values: Any, where: str) -> Array:
    """[n] or [n, k] from numbers or lists of fixed length."""
    import pyarrow as pa

    rows, kind = len(values), values.type
    width: tuple[int, ...] = ()
    if pa.types.is_fixed_size_list(kind):
        width, values, kind = (kind.list_size,), values.flatten(), kind.value_type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not plain or values.null_count or len(values) != rows * int(np.prod(width)):
        raise DataError(where, "refused", got=kind, expected="plain numbers without gaps")
    return np.array(values.to_numpy(zero_copy_only=False)).reshape(rows, *width)


def _read_episode(folder: Path, about: Description, where: str) -> Episode:
    pa = _pyarrow(where)
    try:
        return _episode(_read_batch(pa, folder, where), about, where)
    except (pa.ArrowException, *UNREADABLE) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(where, f"not readable as Arrow ({first:.200})") from error


def _read_batch(pa: Any, folder: Path, where: str) -> Any:
    """The only table of an episode's folder."""
    files = sorted(folder.glob("*.arrow"))
    if len(files) != 1 or files[0].is_symlink():
        raise DataError(where, "is not one Arrow file", got=[file.name for file in files[:4]])
    content = read_bytes(files[0])
    if not content.startswith(MAGIC):
        raise DataError(where, "not an Arrow file", got=repr(content[:8]), expected=repr(MAGIC))
    batches = _batches(pa, pa.py_buffer(content)[len(MAGIC) :], where)
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches() if len(batches) > 1 else batches
    if not whole:
        raise DataError(where, "has no rows")
    return whole[0]


def _batches(pa: Any, content: Any, where: str) -> list[Any]:
    """Every batch of a file, validated; a file is a stream with an index behind it."""
    reader = iter(pa.ipc.MessageReader.open_stream(pa.BufferReader(content)))
    first = next(reader, None)
    if first is None or first.type != "schema":
        got = "no message" if first is None else f"a first message of {first.type}"
        raise DataError(where, "not an Arrow file", got=got)
    schema = pa.ipc.read_schema(first)
    for field in schema:
        _check_field(pa, field, where)
    batches = []
    for message in reader:
        if message.type != "record batch":
            raise DataError(where, "refused", got=f"a message of {message.type}", expected="plain tables")
        if _is_compressed(message.metadata.to_pybytes()):
            raise DataError(where, "refused: compressed Arrow data may unfold to any size")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
    return batches


def _check_field(pa: Any, field: Any, where: str, depth: int = 0) -> None:
    """Numbers, bytes, text, and lists or structs of them; nothing that names a class of its own."""
    types, kind = pa.types, field.type
    plain = (types.is_primitive, types.is_boolean, types.is_binary, types.is_string, types.is_null)
    named = EXTENSION in (field.metadata or {}) or isinstance(kind, pa.BaseExtensionType)
    if named or types.is_dictionary(kind) or depth > 8:
        raise DataError(where, "refused", got=f"{kind!s:.80}", expected="plain numbers")
    if types.is_struct(kind) or types.is_fixed_size_list(kind) or types.is_list(kind):
        for number in range(kind.num_fields):
            _check_field(pa, kind.field(number), where, depth + 1)
    elif not any(is_kind(kind) for is_kind in plain):
        raise DataError(where, "refused", got=f"{kind!s:.80}", expected="plain numbers")


def _is_compressed(message: bytes) -> bool:
    """Whether a record batch's header has Arrow's `compression` entry; read off the flatbuffer itself."""
    root = struct.unpack_from("<I", message, 0)[0]
    header = _entry(message, root, 2)
    if header is None:
        return True
    batch = header + struct.unpack_from("<I", message, header)[0]
    return _entry(message, batch, COMPRESSION_FIELD) is not None


def _entry(message: bytes, table: int, number: int) -> int | None:
    """Where field `number` of a flatbuffer table lies, if it is there."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    if vtable < 0 or struct.unpack_from("<H", message, vtable)[0] < 6 + 2 * number:
        return None
    offset = struct.unpack_from("<H", message, vtable + 4 + 2 * number)[0]
    return table + offset if offset else None


def _pyarrow(where: str) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.ipc  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(where, "reading Arrow needs pyarrow", do="Run: pip install pyarrow") from error
    return pa
