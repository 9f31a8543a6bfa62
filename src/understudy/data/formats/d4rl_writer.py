"""Datasets as D4RL's flat HDF5, which D4RL, CORL and others open; read back, they are what they were to the bit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.drafts import new_file
from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace, space_from, space_json
from understudy.data.dataset import Dataset
from understudy.data.episode import COLUMN_NAME, Array, Episode
from understudy.data.formats.columns import RENAMED
from understudy.data.formats.hdf5_column import Hdf5Column
from understudy.data.formats.hdf5_draft import Sink, new_hdf5_file
from understudy.data.recording import environment_name

MARK = "understudy"
"""A dataset in `metadata` that holds what D4RL has no column for, as the bytes of a JSON text."""
MARK_LIMIT = 1 << 20
OWN_INFOS = {
    "action_log_probs": "extra/action_log_probs",
    "episode_id": "episode_id",
    "final_known": "final_known",
    "action_mask": "action_mask",
    "next_action_mask": "next_action_mask",
}
"""Infos with a meaning in files we wrote, and the column each is."""
BLOCK_BYTES = 8 << 20


def write_d4rl(dataset: Dataset, path: Path, *, env: str = "") -> None:
    """Write `dataset` to a new file, block by block; it appears whole or not at all.

    Time limits go to `timeouts`, ends to `terminals`. What D4RL cannot say lies beside it in `infos`: which episode
    a row belongs to (some end without a flag), and whether `next_observations` of its last row is a stand-in.
    """
    path = Path(path)
    where = f"dataset '{path}'"
    if path.exists():
        raise DataError(where, "already exists", do="Choose another name or remove it first.")
    _check_names(dataset, where)
    with new_file(path) as draft, new_hdf5_file(draft, where) as (file, sink):
        _write(dataset, file, sink, env or dataset.env)


def read_mark(column: Hdf5Column) -> tuple[ActionSpace, str]:
    """The action space and environment that `write_d4rl` noted."""
    if len(column.shape) != 1 or column.dtype != np.uint8 or len(column) > MARK_LIMIT:
        raise DataError(column.where, "not what we write there", got=f"{column.dtype} {list(column.shape)}")
    try:
        note: dict[str, Any] = json.loads(column.whole().tobytes())
        return space_from(note["action"]), environment_name(note.get("env"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(column.where, f"not what we write there ({error!r})") from error


def _check_names(dataset: Dataset, where: str) -> None:
    for name in (*dataset.extra, *dataset.spec.observation):
        if not COLUMN_NAME.fullmatch(name) or name in {*RENAMED, *OWN_INFOS}:
            raise DataError(where, "a column's name has another meaning in D4RL files", got=repr(name), do="Rename it.")


def _write(dataset: Dataset, file: Any, sink: Sink, env: str) -> None:
    mark = json.dumps({"format": 1, "action": space_json(dataset.spec.action), "env": env}).encode()
    file["metadata/" + MARK] = np.frombuffer(mark, np.uint8)
    single = list(dataset.spec.observation) == ["state"]
    row = 0
    for block in _blocks(dataset):
        rows = _join([_columns(episode, number, single) for number, episode in block])
        if not dataset.has_rewards:
            del rows["rewards"]
        for name, values in rows.items():
            if row == 0:
                file.create_dataset(name, (dataset.steps, *values.shape[1:]), values.dtype)
            file[name][row : row + len(values)] = values
        row += len(rows["actions"])
        sink.tell_trouble()


def _blocks(dataset: Dataset) -> Iterator[list[tuple[int, Episode]]]:
    """Numbered episodes, some megabytes at a time."""
    block: list[tuple[int, Episode]] = []
    size = 0
    for number, episode in enumerate(dataset.recording().episodes()):
        block.append((number, episode))
        size += sum(values.nbytes for values in episode.observations.values()) + episode.actions.nbytes
        if size > BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _join(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _columns(episode: Episode, number: int, single: bool) -> dict[str, Array]:
    """An episode's rows, by place in the file; each [n, …]."""
    steps = len(episode)
    ended, cut = np.zeros(steps, bool), np.zeros(steps, bool)
    ended[-1], cut[-1] = episode.terminated, episode.truncated
    columns: dict[str, Array] = {"actions": episode.actions, "rewards": episode.rewards}
    columns |= {"terminals": ended, "timeouts": cut}
    for name, values in episode.observations.items():
        place = "" if single else f"/{name}"
        columns[f"observations{place}"], columns[f"next_observations{place}"] = _shifted(values, steps)
    if episode.mask is not None:
        columns["infos/action_mask"], columns["infos/next_action_mask"] = _shifted(episode.mask, steps)
    for name, values in episode.extra.items():
        columns[f"infos/{'action_log_probs' if name == 'behaviour_log_prob' else name}"] = values
    columns["infos/episode_id"] = np.full(steps, number, np.int64)
    columns["infos/final_known"] = np.full(steps, True)
    columns["infos/final_known"][-1] = episode.final_known
    return columns


def _shifted(values: Array, steps: int) -> tuple[Array, Array]:
    """Rows and their successors, each [n, …]; an unknown last successor repeats the row."""
    return values[:steps], np.concatenate([values[1:], values[-1:]])[:steps]
