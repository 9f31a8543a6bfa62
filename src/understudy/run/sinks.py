"""Where numbers go: metrics.jsonl, eval.jsonl, timing.jsonl, TensorBoard and Weights & Biases."""

import json
import os
import time
from pathlib import Path
from typing import IO, Any, final

from understudy.run.rundir import RunDir, cut_after
from understudy.run.wandb_sink import WandbSink


@final
class LogFile:
    """A JSONL file: whole lines, flushed as written, synced before a checkpoint counts on them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        try:
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)  # a full disk does not say which file it was
            raise

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@final
class Sinks:
    """All logs of a run, cut back to `updates` when opened."""

    def __init__(self, run: RunDir, updates: int, *, tensorboard: bool) -> None:
        cut_after(run.metrics_file, updates)
        cut_after(run.eval_file, updates)
        cut_after(run.timing_file, 2**63)  # nothing but a torn last line
        self._metrics = LogFile(run.metrics_file)
        self._evaluations = LogFile(run.eval_file)
        self._timing = LogFile(run.timing_file)
        self._started = time.monotonic()
        self._last = (updates, self._started)
        self._events = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(run.tensorboard), purge_step=updates + 1)
        self._wandb: WandbSink | None = None

    def add(self, wandb: WandbSink) -> None:
        """From now on the numbers go there, too."""
        self._wandb = wandb

    def log(self, updates: int, metrics: dict[str, float]) -> None:
        self._metrics.write({"updates": updates, **metrics})
        self._scalars(updates, metrics)
        now = time.monotonic()
        before, since = self._last
        self._last = (updates, now)
        speed = {"updates_per_second": (updates - before) / max(now - since, 1e-9)}
        if "env_steps" in metrics:
            speed["env_steps"] = metrics["env_steps"]
        self._timing.write({"updates": updates, "seconds": now - self._started, **speed})

    def log_evaluation(self, updates: int, record: dict[str, Any]) -> None:
        self._evaluations.write({"updates": updates, **record})
        self._scalars(updates, {name: value for name, value in record.items() if name.startswith("eval/")})

    def _scalars(self, updates: int, values: dict[str, float]) -> None:
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(name, value, updates)
        if self._wandb is not None:
            self._wandb.log(updates, values)

    def sync(self) -> None:
        """What the next checkpoint counts as told is on disk; TensorBoard would sit on it for two minutes."""
        self._metrics.sync()
        self._evaluations.sync()
        if self._events is not None:
            self._events.flush()
        if self._wandb is not None:
            self._wandb.sync()

    def close(self) -> None:
        for log in (self._metrics, self._evaluations, self._timing):
            log.close()
        if self._events is not None:
            self._events.close()
        if self._wandb is not None:
            self._wandb.close()
