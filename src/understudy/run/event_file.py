"""TensorBoard's event file, written by the thread that has the numbers: a full disk is an error of that line.

TensorBoard's own writer has a thread for it, which dies with a traceback and tells the run later, without a name.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from understudy.run.growing_file import GrowingFile

PLACES = ("out", "path", "fingerprint", "init_from", "init_fingerprint", "stages")
"""Settings that say where things lie, or which they are."""


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """A run's settings as TensorBoard's table of hyperparameters takes them: dotted names, plain values; no places, no
    digests, nothing that is empty."""
    flat: dict[str, bool | int | float | str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        elif key in PLACES or value is None or value in ("", [], ()):
            continue
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, (bool, int, float, str)) else json.dumps(value)
    return flat


@final
class EventFile:
    """Scalars of one process of a run, and its settings as hyperparameters; what earlier ones told of `updates` and
    later ones is hidden."""

    def __init__(self, folder: Path, updates: int, settings: Mapping[str, Any] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads files in the order of their names
        name = f"events.out.tfevents.{seconds:010d}.{rest:09d}.{socket.gethostname()}.{os.getpid()}"
        self.file = GrowingFile(folder / name, new=True)
        self._records = RecordWriter(self.file)
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=updates, session_log=SessionLog(status=SessionLog.START)))
        if settings:
            self._write(Event(summary=hparams_pb(flat_settings(settings), trial_id=folder.parent.name)))

    def write(self, updates: int, values: Mapping[str, float]) -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(step=updates, summary=Summary(value=scalars)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
