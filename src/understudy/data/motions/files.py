"""Files and folders of motions: which are clips, which are recorded datasets, and who reads them."""

import re
from pathlib import Path

from understudy.core.errors import DataError
from understudy.data.formats.npz import npz_members
from understudy.data.motions.clip import Clip
from understudy.data.motions.npz_clip import is_motion_npz, read_npz_clip
from understudy.data.motions.settings import MotionSettings

SUFFIXES = (".npz",)
KNOWN = "clips (.npz of joint and body states), a packed store, or a recorded dataset"


def is_recorded(path: Path) -> bool:
    """A recorded dataset, not a clip or a folder of clips."""
    files = _candidates(path)
    return not files or not is_clip(files[0])


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
    return is_motion_npz(npz_members(path, f"clip '{path.name}'"))


def read_clip(path: Path, settings: MotionSettings) -> Clip:
    return read_npz_clip(path, settings)


def _candidates(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix in SUFFIXES else []
    if not path.is_dir():
        return []
    return sorted((entry for entry in path.iterdir() if entry.suffix in SUFFIXES and entry.is_file()), key=_in_order)


def _in_order(file: Path) -> list[tuple[int, str]]:
    """`walk2` comes before `walk10`."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", file.name)]
