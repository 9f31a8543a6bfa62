"""Minari datasets, read from their folder by our own code: nothing the metadata names is imported, made or fetched."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from understudy.core.errors import DataError
from understudy.core.wording import counted
from understudy.data.episode import Array, Episode
from understudy.data.formats.hdf5 import Hdf5Group, open_hdf5_file
from understudy.data.formats.minari.arrow import arrow_episodes, play_arrow
from understudy.data.formats.minari.episode import build_episode, one_hot_column
from understudy.data.formats.minari.frames import LOSSY, decode_frames
from understudy.data.formats.minari.metadata import Description, read_description
from understudy.data.formats.minari.spaces import Leaf
from understudy.data.recording import Recording

MINARI_ID = re.compile(r"([A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+-v\d+")
MAIN_FILE = "main_data.hdf5"
EPISODE = re.compile(r"episode_(\d{1,9})")


def open_minari(origin: str | Path, root: Path | None = None, *, mask: str = "") -> Recording:
    """A dataset by its folder, or by its id under `root` (Minari's own folder, if not given).

    `mask` names an info that holds the legal actions of every observation, such as `action_mask`.
    """
    folder = _data_folder(find_minari(origin, root))
    where = f"dataset '{origin}'"
    about = read_description(folder / "metadata.json", where)
    about = about if not mask else replace(about, mask=mask)
    if about.format == "arrow":
        steps = arrow_episodes(folder, about, where)
        return _recording(str(origin), sum(steps), lambda: play_arrow(folder, about, steps, where), about, ())
    if about.format != "hdf5":
        raise DataError(where, "kept in a format we do not read", got=about.format, expected="hdf5 or arrow")
    file = folder / MAIN_FILE
    _refuse_link(file, where)
    reader = _Reader(file, about, where)
    found, steps_in_all, notes = reader.survey()
    return _recording(str(origin), steps_in_all, lambda: reader.play(found), about, notes)


def is_minari(folder: Path) -> bool:
    """Whether the folder looks like a Minari dataset, or like the `data` folder of one."""
    return (
        any((part / "metadata.json").is_file() for part in (folder / "data", folder))
        and not (folder / "manifest.json").exists()
    )


def minari_root() -> Path:
    """Where Minari keeps datasets on this machine."""
    given = os.environ.get("MINARI_DATASETS_PATH")
    return Path(given) if given else Path.home() / ".minari" / "datasets"


def check_minari_id(dataset_id: str) -> str:
    """An id is words joined by slashes and a version; it can never leave the folder it is looked up in."""
    if not MINARI_ID.fullmatch(dataset_id):
        raise DataError(
            f"dataset '{dataset_id}'",
            "not a Minari id",
            expected="namespace/name-v0, of letters, digits, - and _",
        )
    return dataset_id


def find_minari(origin: str | Path, root: Path | None = None) -> Path:
    """The folder of a dataset: itself, or the one of that id under `root`."""
    if root is None and Path(origin).is_dir():
        return Path(origin)
    if isinstance(origin, Path):
        raise DataError(f"dataset '{origin}'", "no such folder")
    folder = (root or minari_root()) / check_minari_id(origin)
    if not folder.is_dir():
        raise DataError(
            f"dataset '{origin}'",
            f"not found under '{root or minari_root()}'",
            do=f"Download it once: understudy dataset download {origin}",
        )
    return folder


def _data_folder(folder: Path) -> Path:
    for part in (folder / "data", folder):
        if (part / "metadata.json").is_file():
            _refuse_link(part / "metadata.json", f"dataset '{folder}'")
            if part != folder:
                _refuse_link(part, f"dataset '{folder}'")
            return part
    raise DataError(f"dataset '{folder}'", "not a Minari dataset: it has no data/metadata.json")


def _refuse_link(path: Path, where: str) -> None:
    """A folder that came from elsewhere must not point out of itself."""
    if path.is_symlink():
        raise DataError(f"{where}, '{path.name}'", "refused: a link to another place", do="Put the file itself there.")


def _recording(
    name: str, steps: int, play: Callable[[], Iterator[Episode]], about: Description, notes: tuple[str, ...]
) -> Recording:
    return Recording(
        name, steps, play, about.action.space, f"minari {about.format}", about.env, (*about.notes, *notes), about.facts
    )


@dataclass(frozen=True)
class _Reader:
    """Episodes of one HDF5 file, a group each."""

    file: Path
    about: Description
    where: str

    def survey(self) -> tuple[list[int], int, tuple[str, ...]]:
        """The numbers of the episodes, their steps in all, and what is to be said of them."""
        with open_hdf5_file(self.file, self.where) as root:
            numbers = self._numbers(root)
            steps = [_steps(root.group(f"episode_{number}")) for number in numbers]
            first = root.group(f"episode_{numbers[0]}")
            notes = [*self._image_notes(first), *self._info_notes(first)]
        if len(numbers) != self.about.episodes:
            notes.append(
                f"The metadata tells of {counted(self.about.episodes, 'episode')}; the file holds {len(numbers)}."
            )
        if 0 in steps:
            notes.append(f"Left out: {counted(steps.count(0), 'episode')} without a step.")
        return [number for number, count in zip(numbers, steps, strict=True) if count], sum(steps), tuple(notes)

    def _numbers(self, root: Hdf5Group) -> list[int]:
        matches = [EPISODE.fullmatch(name) for name in root.names()]
        numbers = sorted(int(match[1]) for match in matches if match)
        if not numbers:
            raise DataError(self.where, "has no episodes")
        if len(numbers) < self.about.episodes or numbers[-1] >= len(numbers):
            raise DataError(
                self.where,
                "episodes are missing",
                got=len(numbers),
                expected=max(self.about.episodes, numbers[-1] + 1),
                do="Was the download cut off?",
            )
        return numbers

    def _image_notes(self, first: Hdf5Group) -> list[str]:
        return [LOSSY] if any(_is_encoded(first, leaf) for leaf in self.about.leaves.values()) else []

    def _info_notes(self, first: Hdf5Group) -> list[str]:
        if "infos" not in first:
            return []
        used = {self.about.mask, *self.about.extra}
        left = [name for name in first.group("infos").names() if name not in used]
        told = f"Infos are not read: {', '.join(left[:8])}" + (" and more." if len(left) > 8 else ".")
        hint = " If action_mask holds the legal actions, give mask='action_mask'." if "action_mask" in left else ""
        return [told + hint] if left else []

    def play(self, numbers: list[int]) -> Iterator[Episode]:
        with open_hdf5_file(self.file, self.where) as root:
            for number in numbers:
                yield self._episode(root.group(f"episode_{number}"), number)

    def _episode(self, group: Hdf5Group, number: int) -> Episode:
        where = f"{self.where}, episode {number}"
        about = self.about
        infos = group.group("infos") if about.mask or about.extra else None
        return build_episode(
            {name: self._group(group, leaf, where) for name, leaf in about.leaves.items()},
            group.column("actions").whole(),
            group.column("rewards").whole(),
            (group.column("terminations").whole(), group.column("truncations").whole()),
            about.action,
            where,
            final_known=number not in about.unknown_finals,
            mask=infos.column(about.mask).whole() if infos is not None and about.mask else None,
            extra={name: infos.column(name)[1:] for name in about.extra} if infos is not None else None,
        )

    def _group(self, group: Hdf5Group, leaf: Leaf, where: str) -> Array:
        """One observation group of an episode [n+1, …]."""
        parent, name = _parent(group, leaf)
        where = f"{where}, observation '{'/'.join(leaf.path) or name}'"
        if leaf.image and parent.is_byte_rows(name):
            frames = parent.byte_rows(name)
            return decode_frames(len(frames), frames.row, leaf.shape, group.limit, where)
        column = parent.column(name)
        if leaf.kind == "choice":
            return one_hot_column(column.whole(), leaf, group.limit, where)
        if leaf.image and len(column.shape) == 2:
            return decode_frames(
                len(column), lambda row: column[row : row + 1].tobytes(), leaf.shape, group.limit, where
            )
        if column.shape[1:] != leaf.shape:
            raise DataError(where, "wrong shape", got=list(column.shape[1:]), expected=list(leaf.shape))
        return column.whole()


def _is_encoded(group: Hdf5Group, leaf: Leaf) -> bool:
    """Whether an image's rows are JPEG: of any length, or all of one length."""
    if not leaf.image:
        return False
    parent, name = _parent(group, leaf)
    return parent.is_byte_rows(name) or len(parent.column(name).shape) == 2


def _parent(group: Hdf5Group, leaf: Leaf) -> tuple[Hdf5Group, str]:
    """The group an observation lies in, and its name there."""
    *folders, name = ("observations", *leaf.path)
    for folder in folders:
        group = group.group(folder)
    return group, name


def _steps(episode: Hdf5Group) -> int:
    return len(episode.column("rewards"))
