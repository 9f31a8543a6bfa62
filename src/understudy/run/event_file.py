"""TensorBoard's event file, written by the thread that has the numbers: a full disk is an error of that line.

TensorBoard's own writer has a thread for it, which dies with a traceback and tells the run later, without a name.
"""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from understudy.run.growing_file import GrowingFile


@final
class EventFile:
    """Scalars of one process of a run; what earlier ones told of later updates than `updates` is hidden."""

    def __init__(self, folder: Path, updates: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads files in the order of their names
        name = f"events.out.tfevents.{seconds:010d}.{rest:09d}.{socket.gethostname()}.{os.getpid()}"
        self.file = GrowingFile(folder / name, new=True)
        self._records = RecordWriter(self.file)
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=updates + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, updates: int, values: Mapping[str, float]) -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(step=updates, summary=Summary(value=scalars)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
