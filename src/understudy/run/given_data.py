"""Data that a caller hands over in memory: a run keeps it as a store of its own, so that it can go on from its path
alone, in another process and to the bit.

What mends a recording is done before it is kept; what chooses among its episodes, and what is done to rewards, is done
by the run, as with any file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import ActionSpace
from understudy.data.action_bounds import given_box
from understudy.data.dataset import Dataset
from understudy.data.formats.readers import Origin, open_recording
from understudy.data.stores.store import is_store, open_store, write_store
from understudy.data.transforms import Mending, Transforms
from understudy.run.config import DataSettings, RunConfig
from understudy.run.loading import prepare
from understudy.run.progress import Reporter
from understudy.run.rundir import DATA, RunDir

READ_AT_ONCE = (*Mending.model_fields, "columns", "action_low", "action_high")
"""Settings that have done their work once the data is kept."""


def is_held(data: object) -> bool:
    """Experience in memory; not a path, and not settings of the group `data`."""
    if data is None or isinstance(data, (str, Path)):
        return False
    return not (isinstance(data, Mapping) and set(data) <= DataSettings.model_fields.keys())


def data_words(data: object) -> dict[str, Any]:
    """What a config says of data that was handed over."""
    if data is None:
        return {}
    if is_held(data):
        name = Path(data.name).stem if isinstance(data, Dataset) else ""
        return {"data.path": name or DATA}
    return {"data": data} if isinstance(data, Mapping) else {"data.path": str(data)}


def keep_data(config: RunConfig, run: RunDir, data: Origin, space: ActionSpace | None, reporter: Reporter) -> RunConfig:
    """The config of a run that learns from `data`, which lies in its directory from now on.

    A dataset that is a store already, as it is, stays where it lies.
    """
    settings = config.logged
    dataset = _read(config, data, space, reporter)
    path = _store_of(dataset) if dataset is data else None
    if path is None:
        path = _written(dataset, run)
    elif path.resolve().is_relative_to(run.path.resolve()):
        raise ConfigError("data", f"'{path}' lies in the run that is to be replaced", do="Choose another out=….")
    kept = {name: DataSettings.model_fields[name].get_default(call_default_factory=True) for name in READ_AT_ONCE}
    changes = {**kept, "path": str(path)}
    stages = tuple(_kept_alike(stage, settings, changes, number) for number, stage in enumerate(config.stages))
    return config.model_copy(update={"data": settings.model_copy(update=changes), "stages": stages})


def _kept_alike(stage: RunConfig, run: DataSettings, changes: dict[str, Any], number: int) -> RunConfig:
    """A stage that learns from the same."""
    data = stage.data
    if data is None or data.path != run.path:
        return stage
    if any(data.__dict__[name] != run.__dict__[name] for name in READ_AT_ONCE):
        raise ConfigError(
            f"stages.{number}.data", "mends data in another way than the run", do="Mend it before it is given."
        )
    return stage.model_copy(update={"data": data.model_copy(update=changes)})


def _read(config: RunConfig, data: Origin, space: ActionSpace | None, reporter: Reporter) -> Dataset:
    """All of it, mended and checked; nothing is chosen yet."""
    settings = config.logged
    if isinstance(data, Dataset) and data.changes_rewards:
        raise DataError(
            f"dataset '{data.name}'",
            "changes its rewards on their way, which no file keeps",
            do="Give the data as it was recorded, and say data.reward=….",
        )
    if space is None and settings.action_low is not None:
        recording = open_recording(data, episode_steps=settings.episode_steps, columns=settings.columns)
        space = given_box(recording, settings.action_low, settings.action_high, "data.action_low and data.action_high")
    mending = Transforms(**{name: settings.__dict__[name] for name in Mending.model_fields}, validation=0.0)
    alone = config.env is None
    return prepare(data, space, mending, "float32", reporter, settings.columns, hold_out=alone).train


def _store_of(dataset: Dataset) -> Path | None:
    """Where a dataset lies on disk, unchanged."""
    path = Path(dataset.name)
    if not is_store(path):
        return None
    return path if open_store(path, verify=False).fingerprint == dataset.fingerprint else None


def _written(dataset: Dataset, run: RunDir) -> Path:
    """A new store in the run's directory; what a killed beginning left there serves, if it is the same."""
    path, number = run.path / DATA, 1
    while path.exists():
        if not run.config_file.exists() and is_store(path) and open_store(path).fingerprint == dataset.fingerprint:
            return path
        number += 1
        path = run.path / f"{DATA}-{number}"
    return write_store(dataset, path)


def found_again(config: RunConfig, run: RunDir) -> RunConfig:
    """The same where its data lies beside it in a directory that was moved; stages find that of their run."""

    def found(data: DataSettings) -> DataSettings:
        path = Path(data.path)
        if not data.path or path.exists():
            return data
        for folder in (run.path, run.path.parent.parent):
            if path.name.partition("-")[0] == DATA and is_store(folder / path.name):
                return data.model_copy(update={"path": str((folder / path.name).resolve())})
        return data

    stages = tuple(found_again(stage, run) for stage in config.stages)
    moved = config.with_data({role: found(data) for role, data in config.data_by_role.items()})
    return moved.model_copy(update={"stages": stages})
