"""A stranger's unfinished recording: its card and journal name files and lengths, and none of it is believed."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from understudy.core.errors import DataError
from understudy.core.files import read_sealed, seal
from understudy.core.spec import Box
from understudy.data.stores.journal import CARD, JOURNAL, Entry, open_unfinished
from understudy.data.stores.recorder import Recorder
from worlds import random_episodes

BOX = Box((-1.0, -1.0), (1.0, 1.0))
Card = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path / "a", BOX)
    for episode in random_episodes(2):
        recorder.add(episode)
    recorder.close()
    return tmp_path / "a"


def forge(path: Path, change: Callable[[Card], None]) -> None:
    """A card with a fitting seal."""
    card = read_sealed(path / CARD)
    change(card)
    (path / CARD).write_bytes(seal(card))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}


@pytest.mark.parametrize("name", ["../victim", "extra.../../victim", "extra.a/b", "observation.other", "lengths", ""])
def test_a_card_cannot_name_another_file(path: Path, tmp_path: Path, name: str) -> None:
    """A column of rows without numbers agrees with every checksum; a recorder would cut its file."""
    (tmp_path / "victim.npy").write_bytes(b"mine" * 1000)
    forge(path, lambda card: card["rows"].update({name: ["uint8", [0]]}))
    before = everything(tmp_path)
    for attempt in (lambda: open_unfinished(path), lambda: Recorder(path, BOX)):
        with pytest.raises(DataError, match=r"is not one we know|cannot be a file|not a row of numbers"):
            attempt()
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card.pop("rows"),
        lambda card: card.update(rows=[]),
        lambda card: card.update(rows=None),
        lambda card: card.update(facts=7),
        lambda card: card.update(spec=None),
        lambda card: card["rows"].pop("reward"),
        lambda card: card["rows"].update(reward=["object", []]),
        lambda card: card["rows"].update(reward=["float32", [-1]]),
        lambda card: card["rows"].update(reward=["float32", [1] * 70]),
        lambda card: card["rows"].update(reward=["float32", [2**62, 4]]),
        lambda card: card["rows"].update(reward=["float32", [10**4200] * 14]),
        lambda card: card["rows"].update(reward=["float64", []]),
        lambda card: card["rows"].update(action=["uint8", [8]]),
        lambda card: card["rows"].update(mask=["bool", [0]]),
        lambda card: card["spec"]["observation"].update({"../x": {"shape": [3], "dtype": "float32"}}),
        lambda card: card["spec"]["observation"]["state"].update(dtype="uint8"),
        lambda card: card["spec"]["observation"]["state"].update(shape=[12]),
    ],
)
def test_a_forged_card_is_refused(path: Path, change: Callable[[Card], None]) -> None:
    forge(path, change)
    with pytest.raises(DataError, match=f"^recording '{path}'"):
        open_unfinished(path)


@pytest.mark.parametrize(
    "line",
    [
        Entry(10**17, True, False, True, 0).line(),
        Entry(10**30, True, False, True, -1).line(),
        Entry(20, True, False, True, zlib.crc32(b"")).line(),
        b"[Infinity, true, false, true, 0]\n",
        b"[NaN, true, false, true, 0]\n",
        b"[" * 100_000,
        b"9" * 10_000,
    ],
)
def test_a_journal_that_tells_of_more_than_there_is(path: Path, line: bytes) -> None:
    with (path / JOURNAL).open("ab") as journal:
        journal.write(line)
    assert open_unfinished(path).episodes == 2


def test_a_folder_in_place_of_a_column(path: Path) -> None:
    (path / "reward.npy").unlink()
    (path / "reward.npy").mkdir()
    with pytest.raises(DataError, match="stopped before its first episode"):
        open_unfinished(path)
