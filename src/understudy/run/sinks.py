"""Where numbers go: metrics.jsonl, eval.jsonl, timing.jsonl, TensorBoard, Weights & Biases and loggers of one's own."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from understudy.core.errors import ConfigError, RunError
from understudy.core.files import file_chunks, sync_directory
from understudy.run.growing_file import GrowingFile
from understudy.run.logs import EVALUATION, LogMark, restore_log
from understudy.run.rundir import RunDir


@runtime_checkable
class Logger(Protocol):
    """A place of your own where a run's numbers go: `train(…, loggers=[MyLogger()])`."""

    def begin(self, path: Path, config: Mapping[str, Any]) -> None:
        """Before the first number of a run, or of one that goes on: its directory, and every setting of it."""

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        """Metrics by name (`loss/critic`), and numbers of evaluations (`eval/return_mean`), as they come."""

    def close(self) -> None:
        """After the last number, however the run ends."""


class Sink(Protocol):
    """One more place where a run's numbers go; what goes wrong there must not touch training."""

    def log(self, updates: int, values: dict[str, float]) -> None: ...

    def sync(self) -> None:
        """What was said is handed over: a checkpoint counts on it."""

    def close(self) -> None: ...


@final
class OwnLogger:
    """A user's logger. What goes wrong with it after its beginning is told once, and the run goes on without it."""

    def __init__(self, logger: Logger, say: Callable[[str], None]) -> None:
        self._logger, self._say, self._lost = logger, say, False

    @classmethod
    def begin(cls, logger: Logger, path: Path, config: Mapping[str, Any], say: Callable[[str], None]) -> "OwnLogger":
        try:
            logger.begin(path, config)
        except Exception as error:
            raise RunError(f"logger {type(logger).__name__}", f"cannot begin ({_told(error)})") from error
        return cls(logger, say)

    def log(self, updates: int, values: dict[str, float]) -> None:
        self._tell(lambda logger: logger.log(updates, dict(values)))

    def sync(self) -> None:
        """It was handed everything at once."""

    def close(self) -> None:
        self._tell(lambda logger: logger.close())

    def _tell(self, act: Callable[[Logger], None]) -> None:
        if self._lost:
            return
        try:
            act(self._logger)
        except Exception as error:
            self._lost = True
            name = type(self._logger).__name__
            self._say(f"logger {name} gets no more numbers ({_told(error)}); the run keeps them in its own logs")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _told_last(run: RunDir, updates: int) -> list[dict[str, float]]:
    """What the logs still have of this very update, as TensorBoard is told it."""
    metrics = [line for line in run.metrics() if line["updates"] == updates]
    evaluations = [_shown(line) for line in run.evaluations() if line["updates"] == updates]
    return [{name: value for name, value in line.items() if name != "updates"} for line in (*metrics, *evaluations)]


def _shown(record: Mapping[str, Any]) -> dict[str, float]:
    """Of an evaluation: numbers, not lists of them."""
    return {name: value for name, value in record.items() if name.startswith("eval/")}


def check_loggers(given: object) -> tuple[Logger, ...]:
    """Loggers as a user gives them."""
    if not isinstance(given, (list, tuple)):
        raise ConfigError("loggers", "not a list", got=type(given).__name__, expected="[logger, …]")
    for logger in given:
        if isinstance(logger, type) or not isinstance(logger, Logger):
            name = logger.__name__ if isinstance(logger, type) else type(logger).__name__
            do = f"Make one: {name}()." if isinstance(logger, type) else ""
            raise ConfigError(
                "loggers", "not a logger", got=name, expected="an object with begin, log and close", do=do
            )
    return tuple(given)


@final
class LogFile:
    """A JSONL file: whole lines, written at once, synced before a checkpoint counts on them."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._size, self._lines, self._digest = 0, 0, hashlib.sha256()
        for chunk in file_chunks(path):
            self._count(chunk)

    def write(self, record: dict[str, Any]) -> None:
        line = f"{json.dumps(record)}\n".encode()
        self._file.write(line)
        self._count(line)

    @property
    def name(self) -> str:
        return self._file.path.name

    def mark(self) -> LogMark:
        return LogMark(size=self._size, lines=self._lines, sha256=self._digest.hexdigest())

    def check_present(self) -> None:
        self._file.check_present()

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _count(self, content: bytes) -> None:
        self._size += len(content)
        self._lines += content.count(b"\n")
        self._digest.update(content)


@final
class Sinks:
    """All logs of a run, cut back to `updates` when opened; `marks` say what a checkpoint knows of them."""

    def __init__(
        self,
        run: RunDir,
        updates: int,
        *,
        tensorboard: bool,
        marks: Mapping[str, LogMark] | None = None,
        evaluated: tuple[str, ...] = EVALUATION,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        marks = marks or {}
        losses = [
            restore_log(run.metrics_file, updates, marks.get(run.metrics_file.name)),
            restore_log(run.eval_file, updates, marks.get(run.eval_file.name), evaluated),
            restore_log(run.timing_file, 2**63),  # nothing but a torn last line
        ]
        self.lost = [loss for loss in losses if loss]
        """Sentences: what of the logs was lost since the checkpoint."""
        self.failure: OSError | None = None
        """Why the run cannot go on, although it can be saved: a log was deleted, or TensorBoard's file has no room."""
        self._metrics = LogFile(run.metrics_file)
        self._evaluations = LogFile(run.eval_file)
        self._timing = LogFile(run.timing_file)
        sync_directory(run.path)
        self._started = time.monotonic()
        self._last = (updates, 0.0, self._started)
        self._events = None
        if tensorboard:
            from understudy.run.event_file import EventFile

            self._events = EventFile(run.tensorboard, updates, settings)
            for values in _told_last(run, updates):  # an evaluation that was told may be cut off, and come again
                self._events.write(updates, values)
        self._others: list[Sink] = []

    def add(self, sink: Sink) -> None:
        """From now on the numbers go there, too."""
        self._others.append(sink)

    def log(self, updates: int, metrics: dict[str, float], seconds: Mapping[str, float] | None = None) -> None:
        """`seconds`: what an update took, by what was done in them. What the clock decides is told apart."""
        self._metrics.write({"updates": updates, **metrics})
        speed = self._speed(updates, metrics) | dict(seconds or {})
        self._scalars(updates, metrics, speed)
        counted = {"env_steps": metrics["env_steps"]} if "env_steps" in metrics else {}
        self._timing.write({"updates": updates, "seconds": time.monotonic() - self._started, **speed, **counted})

    def _speed(self, updates: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Of updates, and of environments' steps, since the last log."""
        now, steps = time.monotonic(), metrics.get("env_steps", 0.0)
        before, steps_before, since = self._last
        self._last, passed = (updates, steps, now), max(now - since, 1e-9)
        told = {"updates_per_second": (updates - before) / passed}
        if steps and steps_before:
            told["env_steps_per_second"] = (steps - steps_before) / passed
        return told

    def log_evaluation(self, updates: int, record: dict[str, Any], seconds: float = 0.0) -> None:
        self._evaluations.write({"updates": updates, **record})
        speed = {"evaluation_seconds": seconds}
        self._scalars(updates, _shown(record), speed)
        self._timing.write({"updates": updates, "seconds": time.monotonic() - self._started, **speed})

    def _scalars(self, updates: int, values: dict[str, float], speed: Mapping[str, float]) -> None:
        """To TensorBoard the clock's numbers, too: loggers get what is equal in equal runs."""
        for sink in self._others:
            sink.log(updates, values)
        if self.failure is not None:
            return
        try:
            if self._events is not None:
                self._events.write(updates, {**values, **{f"speed/{name}": value for name, value in speed.items()}})
                self._events.file.check_present()
            for log in (self._metrics, self._evaluations, self._timing):
                log.check_present()
        except OSError as error:
            self.failure = error

    def marks(self) -> dict[str, LogMark]:
        """How far the logs have come that are equal in equal runs."""
        return {log.name: log.mark() for log in (self._metrics, self._evaluations)}

    def sync(self) -> None:
        """What the next checkpoint counts as told is on disk."""
        self._metrics.sync()
        self._evaluations.sync()
        for sink in self._others:
            sink.sync()

    def close(self) -> None:
        for log in (self._metrics, self._evaluations, self._timing):
            log.close()
        if self._events is not None:
            self._events.file.close()
        for sink in self._others:
            sink.close()
