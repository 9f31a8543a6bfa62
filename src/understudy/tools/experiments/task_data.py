"""Where the data of a suite's tasks lies, how it is made if that can be done here, and how to get what is not here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.files import json_bytes, sha256_bytes
from understudy.core.wording import counted
from understudy.data.corruption import ENTRY, Corruption, corruptions_in
from understudy.data.formats.minari.reader import minari_root
from understudy.data.recipes import Recipe
from understudy.data.stores.store import is_store, store_recipe
from understudy.run.dataset_tiers import resolve_recipe
from understudy.run.loading import record_recipe
from understudy.run.progress import SILENT, Reporter
from understudy.run.suites import Suite, Task
from understudy.tools.dataset.conversion import corrupt_file

FOLDER = "data"
"""Of an experiment's folder: what was made for it."""
ENDINGS = ("", ".npz", ".hdf5", ".h5", ".parquet", ".csv")


@final
@dataclass(frozen=True)
class Making:
    """A dataset that is played, and perhaps made wrong, before runs can begin; all of them then learn from the same."""

    task: str
    path: Path
    recipe: Recipe
    corruption: Corruption | None

    @property
    def clean(self) -> Path:
        """What the recipe plays. Tasks that differ in what is made wrong share it."""
        if self.corruption is None:
            return self.path
        return self.path.with_name(f"clean-{sha256_bytes(json_bytes(self._facts))[:12]}")

    @property
    def _facts(self) -> dict[str, Any]:
        return resolve_recipe(self.recipe).model_dump(mode="json")

    def done(self) -> bool:
        """It is there already; an error if another dataset is."""
        if not is_store(self.path):
            return False
        kept = store_recipe(self.path)
        done = [record.model_dump(include=set(Corruption.model_fields)) for record in corruptions_in(kept)]
        wished = [] if self.corruption is None else [self.corruption.model_dump()]
        if {key: value for key, value in kept.items() if key != ENTRY} != self._facts or done != wished:
            do = "Choose another place (--out), or remove it."
            raise DataError(f"dataset '{self.path}'", "was made in another way than this task says", do=do)
        return True

    def make(self, reporter: Reporter = SILENT) -> None:
        """What a killed making left is gone on with."""
        if self.done():
            return
        if not is_store(self.clean):
            reporter.say(f"{self.task}: making its data")
            self.clean.parent.mkdir(parents=True, exist_ok=True)
            record_recipe(self.recipe, self.clean, reporter)
        if self.corruption is not None:
            corrupt_file(str(self.clean), self.path, self.corruption, reporter=reporter)


@final
@dataclass(frozen=True)
class Found:
    """Data by task, and what has yet to be made of it."""

    paths: Mapping[str, str]
    makings: Mapping[str, Making]


def find_data(suite: Suite, tasks: Sequence[Task], places: Sequence[str], out: Path) -> Found:
    """Where each task's data lies; tasks that have none of their own (methods bring it, or need none) are left out."""
    named, folders = _parted(places, tasks)
    paths: dict[str, str] = {}
    makings: dict[str, Making] = {}
    for task in tasks:
        found = named.get(task.id) or _in_folders(task, folders) or task.data
        if not found and task.recipe is not None:
            making = Making(task.id, out / FOLDER / task.id.replace("/", "-"), task.recipe, task.corruption)
            makings.update({} if making.done() else {task.id: making})
            found = str(making.path)
        if not found and task.minari and (minari_root() / task.minari).is_dir():
            found = task.minari
        paths.update({task.id: found} if found else {})
    if missing := [task for task in tasks if task.id not in paths and task.data_hint()]:
        lines = [f"  {task.id}: {_how_to_get(task)}" for task in missing]
        do = "\n".join(
            ["Get it:", *lines, f"Then: understudy bench {suite.name} --data FOLDER (or --tasks those of yours)."]
        )
        raise DataError(f"suite '{suite.name}'", f"the data of {counted(len(missing), 'task')} is not here", do=do)
    return Found(paths, makings)


def _parted(places: Sequence[str], tasks: Sequence[Task]) -> tuple[dict[str, str], list[Path]]:
    """`task=path` apart from folders."""
    named, folders, known = {}, [], [task.id for task in tasks]
    for place in places:
        task, equals, path = place.partition("=")
        if equals and not Path(place).exists():
            if task not in known:
                raise ConfigError("--data", f"no task '{task}' among those chosen", do=did_you_mean(task, known))
            named[task] = path
        elif Path(place).is_dir():
            folders.append(Path(place))
        else:
            raise ConfigError("--data", f"'{place}' is no folder", do="Name the folder, or one task's data: TASK=PATH.")
    return named, folders


def _in_folders(task: Task, folders: Sequence[Path]) -> str:
    """A file or folder of the task's name, with its version or without, of the name D4RL gave it, or its Minari id."""
    called = dict.fromkeys((task.id, re.sub(r"-v\d+$", "", task.id)))
    names = [f"{name}{ending}" for name in called for ending in ENDINGS]
    names += [name for name in (task.d4rl, Path(task.d4rl).name, task.minari) if name]
    return next((str(folder / name) for folder in folders for name in names if (folder / name).exists()), "")


def _how_to_get(task: Task) -> str:
    if task.minari:
        return f"understudy dataset download {task.minari}"
    return f"understudy dataset download {task.id} --root FOLDER" if task.d4rl else task.origin
