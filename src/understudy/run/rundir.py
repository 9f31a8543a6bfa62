"""The run directory: what lies where, who may write, and when it counts as finished.

config.yaml   resolved, complete            meta.json     versions, git, host, argv, dataset
metrics.jsonl one line per log              eval.jsonl    one line per evaluation (damaged ones: *.damaged-1.jsonl)
timing.jsonl  everything the clock decides  tensorboard/  event files
checkpoints/  latest → 000020000/, segments policy/       final and best, deployable
plots/        pictures                      wandb.json    the id of its W&B run, if it has one
export/       as ONNX or TorchScript        stopped.json  why and where it was stopped, until it goes on
data/         what it learns from, if that  result.json   written last: its presence means "finished"
              was handed over in memory     videos/       .mp4 and .gif
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, final

from understudy.core.errors import RunError, near
from understudy.core.facts import Facts, Whole
from understudy.core.files import discard, open_regular, read_json, write_bytes, write_json
from understudy.core.lock import LOCK, is_locked, lock_folder, release
from understudy.run.checkpoint import NUMBERED, SEGMENTS, collect_segments, list_checkpoints
from understudy.run.config import RunConfig, read_resolved
from understudy.run.identity import SEALED, seal_line
from understudy.run.logs import METRICS, read_lines

DATA = "data"
"""The folder of what was handed over in memory."""
LEFTOVER = re.compile(r"\.(?P<name>.+?)(\.\d+(\.understudy)?)?\.(tmp|draft|old)")
"""Drafts and doomed folders of a process that died."""


State = Literal["finished", "stopped", "killed", "running"]


class StopNote(Facts):
    """What stopped.json holds."""

    reason: str
    updates: Whole = 0

    @classmethod
    def read(cls, path: Path) -> "StopNote":
        return cls.parse(read_json(path), str(path))


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
        self.stop_file = self.path / "stopped.json"
        self.checkpoints = self.path / "checkpoints"
        self.policies = self.path / "policy"
        self.plots = self.path / "plots"
        self.videos = self.path / "videos"
        self.tensorboard = self.path / "tensorboard"

    @classmethod
    def open(cls, path: Path | str) -> "RunDir":
        """An existing run, or an error that says what is there instead."""
        run = cls(path)
        if not run.path.is_dir():
            what = "is a file, and no run directory" if run.path.is_file() else "no such directory"
            raise RunError(f"run '{path}'", what, do=_neighbour(run.path))
        if not run.config_file.is_file():
            raise RunError(f"run '{path}'", "not a run directory (it has no config.yaml)")
        return run

    def create(self, config: RunConfig, meta: dict[str, Any]) -> None:
        """Write the birth certificate; from the config on, the run can be resumed."""
        self.write_config(config)
        write_json(self.meta_file, meta)

    def check_free(self, *, overwrite: bool = False, keeps_data: bool = False) -> None:
        """Nothing is here; or, to be overwritten, at most a run: many a folder of somebody's work has a config.yaml.
        One that keeps its data may have been killed just after it had written that."""
        if overwrite and self.config_file.is_file() and not self.path.is_symlink():
            self._check_sealed()
            return
        if self.finished:
            raise RunError(
                f"run '{self.path}'",
                "already holds a finished run",
                do="Choose another out=…, or replace it: overwrite=True in Python, --overwrite on the command line.",
            )
        if self.config_file.exists():
            raise RunError(
                f"run '{self.path}'",
                "already holds an unfinished run",
                do=f"Go on with: understudy resume {self.path} (or choose another out=…, or overwrite it).",
            )
        if self.path.exists() and (
            not self.path.is_dir()
            or any(
                not entry.name.startswith(".") and not (keeps_data and entry.name == DATA)
                for entry in self.path.iterdir()
            )
        ):
            raise RunError(
                f"run '{self.path}'", "exists already and is not a run", do="Choose another out=… or an empty folder."
            )

    def _check_sealed(self) -> None:
        """A run wrote the config that lies here."""
        with open_regular(self.config_file, links=False) as file:
            if file.read(len(SEALED)) == SEALED.encode():
                return
        raise RunError(
            f"run '{self.path}'",
            "its config.yaml is none that a run wrote, so nothing is overwritten",
            do="Choose another out=…, or remove what lies there yourself.",
        )

    def clear(self, keep: tuple[str, ...] = ()) -> None:
        """Remove the run that lies here, all but `keep` and hidden files of others (.git). Only the holder of the lock
        may.

        Its config goes last: what is removed halfway can still be told for a run, and be overwritten.
        """
        kept = {self.config_file.name, *keep}
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry != self.result_file):
            ours = not entry.name.startswith(".") or LEFTOVER.fullmatch(entry.name)
            if ours and entry.name not in kept:
                discard(entry)
        self.config_file.unlink(missing_ok=True)

    def write_config(self, config: RunConfig) -> None:
        write_bytes(self.config_file, (seal_line(config) + config.to_yaml()).encode())

    @property
    def config(self) -> RunConfig:
        return read_resolved(self.config_file)

    @property
    def finished(self) -> bool:
        return self.result_file.exists()

    @property
    def state(self) -> State:
        """Killed is what says nothing of its end, and is nobody's."""
        if self.finished:
            return "finished"
        if self.stop_file.exists():
            return "stopped"
        return "running" if is_locked(self.path) else "killed"

    @property
    def result(self) -> dict[str, Any]:
        """What came of it. A run that has not reached its end says how far it is, with its last evaluation, and under
        `stopped` why it does not go on."""
        if self.finished:
            return read_json(self.result_file)
        state, evaluations = self.state, self.evaluations()
        note = StopNote.read(self.stop_file) if state == "stopped" else StopNote(reason=state)
        done = max(note.updates, *list_checkpoints(self.checkpoints)[-1:], 0)
        return {
            "fingerprint": self.config.fingerprint,
            **(evaluations[-1] if evaluations else {}),
            "updates": done,
            **({} if state == "running" else {"stopped": note.reason}),
        }

    def note_stop(self, reason: str, updates: int) -> None:
        """Write down why it ended before its end; what cannot be written is told by whoever stopped it."""
        with suppress(OSError):
            if self.config_file.exists():
                write_json(self.stop_file, {"reason": reason, "updates": updates})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process writes. The kernel frees the lock when its holder dies, however it dies.

        Where an error leaves nothing but what was made for the lock, that goes, too.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        self.check_contained()
        handle = lock_folder(
            self.path, RunError, f"run '{self.path}'", "Wait for it, stop it, or choose another out=…."
        )
        try:
            yield
        except BaseException:
            with suppress(OSError):
                if made and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                    (self.path / LOCK).unlink()
                    for folder in made:
                        folder.rmdir()
            raise
        finally:
            release(handle)

    def check_contained(self) -> None:
        """Whoever writes here writes nowhere else, and waits for nobody: links, pipes and devices are refused."""
        for path, what in _strangers(self.path):
            raise RunError(
                f"run '{self.path}'",
                f"'{path.relative_to(self.path)}' is {what}",
                do="Put a file or folder of the run's own there, or remove it; nothing was changed.",
            )

    def clear_leftovers(self) -> None:
        """Remove what a process left that died. Only the holder of the lock may."""
        for folder in (self.path, self.checkpoints, self.checkpoints / SEGMENTS, self.policies, self.plots):
            for entry in folder.glob(".*"):
                if found := LEFTOVER.fullmatch(entry.name):
                    original = folder / found["name"]
                    given_up = entry.suffix == ".old" and entry.is_dir() and not entry.is_symlink()
                    if folder == self.policies and given_up and not os.path.lexists(original):
                        entry.rename(original)  # it died before the new policy had the name
                    else:
                        discard(entry)
        collect_segments(self.checkpoints, {})

    def evaluations(self, names: tuple[str, ...] = METRICS) -> list[dict[str, Any]]:
        """The lines of eval.jsonl, each with these names."""
        return read_lines(self.eval_file, names)

    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics_file)


def _neighbour(path: Path) -> str:
    """A run beside it whose name is nearly the same, or the one it lies in."""
    if path.is_file():
        return f"Did you mean '{path.parent}'?" if (path.parent / "config.yaml").is_file() else ""
    with suppress(OSError):
        beside = [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
        if close := near(path.name, beside):
            return f"Did you mean '{path.parent / close}'?"
    return ""


def _strangers(folder: Path) -> Iterator[tuple[Path, str]]:
    """What is neither a file nor a folder, below a folder, and what it is instead.

    A numbered checkpoint may be anything: it is verified when it is read, and removed without being entered. So are
    leftovers. What lies in W&B's folder is W&B's, which makes links there; a run does not write into it.
    """
    with suppress(FileNotFoundError), os.scandir(folder) as entries:  # a living run removes things meanwhile
        for entry in entries:
            path = folder / entry.name
            if LEFTOVER.fullmatch(entry.name) or (folder.name == "checkpoints" and NUMBERED.fullmatch(entry.name)):
                continue
            if entry.is_symlink():
                yield path, "a link, and what is written to it would change files outside the run"
            elif entry.is_dir(follow_symlinks=False):
                if entry.name != "wandb":
                    yield from _strangers(path)
            elif not entry.is_file(follow_symlinks=False):
                yield path, "a pipe, a socket or a device, and no run writes to those"
