"""What W&B wrote while it was offline, read back from its own files."""

import json
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HEADER, BLOCK, CHUNK = 7, 32768, struct.Struct("<IHB")
WHOLE, LAST = 1, 4


def _chunks(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format: chunks of (checksum, length, kind), none across a block's end."""
    place, record = HEADER, b""
    while place + CHUNK.size <= len(data):
        left = BLOCK - place % BLOCK
        if left < CHUNK.size:
            place += left
            continue
        _, length, kind = CHUNK.unpack_from(data, place)
        place += CHUNK.size + length
        record += data[place - length : place]
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def offline_runs(run: Path) -> list[Path]:
    """The files of W&B's offline runs in a run directory, oldest first."""
    return sorted((run / "wandb").glob("offline-run-*/run-*.wandb"))


def _records(file: Path) -> Iterator[Any]:
    messages = import_module("wandb.proto.wandb_internal_pb2")
    for chunk in _chunks(file.read_bytes()):
        yield messages.Record.FromString(chunk)


def history(file: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, numbers) of every row, without W&B's own clock."""
    found = []
    for record in _records(file):
        if record.WhichOneof("record_type") == "history":
            items = {"".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            numbers = {name: value for name, value in items.items() if not name.startswith("_")}
            found.append((int(items["_step"]), numbers))
    return found


def commit(file: Path) -> str:
    """The git commit the run is of."""
    found = next(record.run.git.commit for record in _records(file) if record.WhichOneof("record_type") == "run")
    return str(found)


def preflight(file: Path) -> tuple[str, str, str, dict[str, Any]]:
    """Id, project, name and config of the run."""
    run = next(record.run for record in _records(file) if record.WhichOneof("record_type") == "run")
    config = {item.key: json.loads(item.value_json) for item in run.config.update if item.key != "_wandb"}
    return run.run_id, run.project, run.display_name, config
