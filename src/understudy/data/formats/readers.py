"""Any file or folder of experience as a recording: the kind is read off the content, never off the name alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from understudy.core.errors import DataError
from understudy.core.wording import counted
from understudy.data.corruption import corruption_facts, corruptions_in
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.column_map import ColumnMap
from understudy.data.formats.d4rl import open_d4rl
from understudy.data.formats.in_memory import open_held
from understudy.data.formats.minari.reader import MINARI_ID, is_minari, open_minari
from understudy.data.formats.npz import open_npz
from understudy.data.recording import Recording
from understudy.data.stores.journal import is_unfinished, open_unfinished
from understudy.data.stores.store import is_store, open_store, store_recipe

if TYPE_CHECKING:
    import pandas as pd

Origin = Union[str, Path, Dataset, "pd.DataFrame", Mapping[str, Any], Sequence[Episode | Mapping[str, Any]]]
"""Where experience comes from: a path or Minari id, or something in memory."""
SHOWN = 5
KNOWN = "an .npz file, an HDF5 file (D4RL), a Minari dataset, or a store folder"
MAGIC = {b"PK": "npz", b"\x89HDF": "hdf5"}
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


def check_origin(origin: str) -> None:
    """There is something of this name, before anything is read."""
    if not Path(origin).exists():
        open_recording(origin)


def open_recording(origin: Origin, *, episode_steps: int | None = None, columns: ColumnMap = "") -> Recording:
    """A path, a Minari id, or anything in memory that `open_held` knows.

    `episode_steps` is for flat files, which may mark no end at all; any other kind is cut by `mend`. `columns` tells
    what a table's columns are.
    """
    if not isinstance(origin, (str, Path)):
        return open_held(origin, columns=columns, episode_steps=episode_steps)
    path = Path(origin)
    if path.is_dir():
        return _open_folder(path)
    if path.is_file():
        return _open_file(path, episode_steps)
    if MINARI_ID.fullmatch(str(origin)):
        return open_minari(str(origin))
    raise DataError(f"dataset '{origin}'", "no such file", expected=f"{KNOWN}, or a Minari id")


def _open_folder(path: Path) -> Recording:
    if is_store(path):
        recording, recipe = open_store(path).recording(), store_recipe(path)
        notes = tuple(record.sentence() for record in corruptions_in(recipe))
        return replace(recording, notes=notes, facts={**recording.facts, **corruption_facts(recipe)})
    if is_unfinished(path):
        dataset = open_unfinished(path)
        note = f"an unfinished recording, read as far as it is whole: {counted(dataset.episodes, 'episode')}"
        return replace(dataset.recording(), layout="unfinished store", notes=(note,))
    if is_minari(path):
        return open_minari(path)
    inside = [entry.name for entry in sorted(path.iterdir()) if entry.suffix in (".npz", ".hdf5", ".h5")]
    do = f"Give one of the files in it: {', '.join(inside[:SHOWN])}{', …' if len(inside) > SHOWN else ''}"
    raise DataError(f"dataset '{path}'", "a folder that holds no dataset", expected=KNOWN, do=do if inside else "")


def _open_file(path: Path, episode_steps: int | None) -> Recording:
    with path.open("rb") as file:
        start = file.read(8)
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "")
    if path.suffix in PICKLES:
        raise DataError(
            f"dataset '{path}'",
            "refused: a pickle may run any code when it is read",
            do="Where you trust it, load it and save its arrays with numpy.savez.",
        )
    if kind == "npz" or path.suffix == ".npz":
        return open_npz(path, episode_steps=episode_steps)
    if kind == "hdf5" or path.suffix in (".hdf5", ".h5"):
        return open_d4rl(path, episode_steps=episode_steps)
    raise DataError(f"dataset '{path}'", "unknown kind of file", got=repr(start), expected=KNOWN)
