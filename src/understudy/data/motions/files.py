"""Files and folders of motions: which are clips, which are recorded datasets, and who reads them."""

from collections.abc import Callable
from pathlib import Path

from understudy.core.errors import DataError
from understudy.data.formats.npz import npz_members
from understudy.data.formats.readers import in_order
from understudy.data.motions.clip import Clip
from understudy.data.motions.csv_clip import is_motion_csv, read_csv_clip
from understudy.data.motions.deepmimic_clip import is_deepmimic, read_deepmimic_clip
from understudy.data.motions.npz_clip import is_motion_npz, read_npz_clip
from understudy.data.motions.settings import MotionSettings

READERS: dict[str, Callable[[Path, MotionSettings], Clip]] = {
    ".npz": read_npz_clip,
    ".txt": read_deepmimic_clip,
    ".json": read_deepmimic_clip,
    ".csv": read_csv_clip,
    ".tsv": read_csv_clip,
}
KNOWN = (
    "clips (.npz of joint and body states, DeepMimic's .txt or .json, .csv of joint positions), a packed store, or a "
    "recorded dataset"
)
TEXT = (".txt", ".json")
"""Files of these kinds may be anything, a licence for instance: those that are no clips are not looked at."""


def is_recorded(path: Path) -> bool:
    """A recorded dataset, not a clip or a folder of clips."""
    return not any(is_clip(file) for file in _candidates(path)[:1])


def clip_files(path: Path) -> list[Path]:
    """The clips at a path, in the order of their names; each has a name of its own."""
    files = _candidates(path)
    if not files:
        raise DataError(f"motions '{path}'", "no clips here", expected=KNOWN)
    names = [file.stem for file in files]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"motions '{path}'", "clips of one name", got=", ".join(repeated[:6]))
    return files


def is_clip(path: Path) -> bool:
    """By its content."""
    if path.suffix == ".npz":
        return is_motion_npz(npz_members(path, f"clip '{path.name}'"))
    return is_deepmimic(path) if path.suffix in TEXT else is_motion_csv(path)


def read_clip(path: Path, settings: MotionSettings) -> Clip:
    """As its file has it; unchecked."""
    return READERS[path.suffix](path, settings)


def _candidates(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix in READERS else []
    if not path.is_dir():
        return []
    found = sorted((entry for entry in path.iterdir() if entry.suffix in READERS and entry.is_file()), key=in_order)
    return [file for file in found if file.suffix not in TEXT or is_deepmimic(file)]
