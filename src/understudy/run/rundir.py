"""The run directory: what lies where, who may write, and when it counts as finished.

config.yaml   resolved, complete            meta.json     versions, git, host, argv, dataset
metrics.jsonl one line per log              eval.jsonl    one line per evaluation
timing.jsonl  everything the clock decides  tensorboard/  event files
checkpoints/  latest → 000020000/           policy/       final and best, deployable
plots/        pictures                      wandb.json    the id of its W&B run, if it has one
export/       as ONNX or TorchScript        result.json   written last: its presence means "finished"
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from understudy.core.errors import RunError
from understudy.core.files import discard, read_json, write_bytes, write_json
from understudy.core.lock import lock_folder, release
from understudy.run.config import RunConfig, read_resolved


@final
class RunDir:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.meta_file = self.path / "meta.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.eval_file = self.path / "eval.jsonl"
        self.timing_file = self.path / "timing.jsonl"
        self.result_file = self.path / "result.json"
        self.checkpoints = self.path / "checkpoints"
        self.policies = self.path / "policy"
        self.plots = self.path / "plots"
        self.tensorboard = self.path / "tensorboard"

    @classmethod
    def open(cls, path: Path | str) -> "RunDir":
        """An existing run, or an error that says what is there instead."""
        run = cls(path)
        if not run.path.is_dir():
            raise RunError(f"run '{path}'", "no such directory")
        if not run.config_file.is_file():
            raise RunError(f"run '{path}'", "not a run directory (it has no config.yaml)")
        return run

    def create(self, config: RunConfig, meta: dict[str, Any]) -> None:
        """Write the birth certificate; from the config on, the run can be resumed."""
        self.write_config(config)
        write_json(self.meta_file, meta)

    def check_free(self) -> None:
        if self.finished:
            raise RunError(
                f"run '{self.path}'", "already holds a finished run", do="Choose another out=… or remove it first."
            )
        if self.config_file.exists():
            raise RunError(
                f"run '{self.path}'",
                "already holds an unfinished run",
                do=f"Go on with: understudy resume {self.path} (or choose another out=…).",
            )
        if self.path.exists() and (
            not self.path.is_dir() or any(not entry.name.startswith(".") for entry in self.path.iterdir())
        ):
            raise RunError(
                f"run '{self.path}'", "exists already and is not a run", do="Choose another out=… or an empty folder."
            )

    def write_config(self, config: RunConfig) -> None:
        write_bytes(self.config_file, config.to_yaml().encode())

    @property
    def config(self) -> RunConfig:
        return read_resolved(self.config_file)

    @property
    def finished(self) -> bool:
        return self.result_file.exists()

    @property
    def result(self) -> dict[str, Any]:
        return read_json(self.result_file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process writes. The kernel frees the lock when its holder dies, however it dies."""
        self.path.mkdir(parents=True, exist_ok=True)
        handle = lock_folder(
            self.path, RunError, f"run '{self.path}'", "Wait for it, stop it, or choose another out=…."
        )
        try:
            yield
        finally:
            release(handle)

    def clear_leftovers(self) -> None:
        """Remove drafts and doomed folders of a process that died. Only the holder of the lock may."""
        for folder in (self.path, self.checkpoints, self.policies, self.plots):
            for entry in folder.glob(".*"):
                if re.fullmatch(r"\..+\.(tmp|draft|old|png)", entry.name):
                    discard(entry)

    def evaluations(self) -> list[dict[str, Any]]:
        return read_lines(self.eval_file)

    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics_file)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSONL log; a torn last line is what a kill leaves and is passed over."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def cut_after(path: Path, updates: int) -> None:
    """Keep the lines up to an update, so that a resumed log equals an uninterrupted one byte for byte."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")[:-1]
    counts = [_updates_of(line) for line in lines]
    kept = max((number for number, count in enumerate(counts, 1) if count is not None and count <= updates), default=0)
    if None in counts[:kept]:
        raise RunError(
            f"{path}, line {counts.index(None) + 1}",
            "not readable, and lines after it belong to the run",
            do="Restore the file; nothing was changed.",
        )
    write_bytes(path, b"".join(line + b"\n" for line in lines[:kept]))


def _updates_of(line: bytes) -> int | None:
    """The update a line tells of; None for the garbage a power cut may leave behind the last sync."""
    try:
        return int(json.loads(line)["updates"])
    except (ValueError, KeyError, TypeError):
        return None
