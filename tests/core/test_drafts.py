"""Drafts of dead writers are swept, those of living ones are not, whatever number either has."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from understudy.core.drafts import new_file, new_folder, sweep, working_folder
from understudy.core.errors import DataError


@contextmanager
def another_writer(path: Path, kind: str = "draft") -> Iterator[int]:
    """A process that holds a draft of `path`, killed in the end."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with working_folder(path, kind) as draft:
            (draft / "half").write_bytes(b"1")
            os.write(told, b"1")
            signal.pause()
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"1"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["draft", "file", "store"])
def test_only_the_drafts_of_dead_writers_are_swept(tmp_path: Path, kind: str) -> None:
    with another_writer(tmp_path / "a", kind) as writer:
        left = f".a.{writer}.{kind}"
        sweep(tmp_path / "a")
        assert names(tmp_path) == [left]
        with new_folder(tmp_path / "a") as draft:
            (draft / "x").write_bytes(b"whole")
        assert names(tmp_path) == [left, "a"]
    assert names(tmp_path) == [left, "a"]
    sweep(tmp_path / "b")  # another target's business
    assert names(tmp_path) == [left, "a"]
    with new_file(tmp_path / "a.npz"):  # the same
        pass_on = tmp_path / f".a.npz.{os.getpid()}.file" / "a.npz"
        pass_on.write_bytes(b"1")
    assert names(tmp_path) == [left, "a", "a.npz"]
    sweep(tmp_path / "a")
    assert names(tmp_path) == ["a", "a.npz"]


def test_a_living_writer_of_our_own_number_is_not_disturbed(tmp_path: Path) -> None:
    """Two containers that share a folder."""
    with another_writer(tmp_path / "a") as writer:
        (tmp_path / f".a.{writer}.draft").rename(tmp_path / f".a.{os.getpid()}.draft")
        with pytest.raises(DataError, match="another process is writing it"), new_folder(tmp_path / "a"):
            raise AssertionError("never reached")
        assert (tmp_path / f".a.{os.getpid()}.draft" / "half").exists()
    with new_folder(tmp_path / "a"):
        assert not (tmp_path / f".a.{os.getpid()}.draft" / "half").exists()
    assert names(tmp_path) == ["a"]


def test_nothing_that_only_looks_like_a_draft_is_removed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"1")
    (tmp_path / ".a.7.draft").symlink_to(tmp_path / "real")
    (tmp_path / ".a.8.draft").write_bytes(b"a file")
    (tmp_path / ".a.b.draft").mkdir()
    (tmp_path / ".a.9.old").mkdir()
    before = names(tmp_path)
    sweep(tmp_path / "a")
    assert names(tmp_path) == before
    assert (tmp_path / "real" / "x").exists()


def test_an_error_names_what_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as told, new_file(tmp_path / "a.npz"):
        raise OSError(28, "No space left on device")
    assert told.value.filename == str(tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError) as missing, new_folder(tmp_path / "a") as draft:
        (draft / "no" / "such").write_bytes(b"")
    assert missing.value.filename == str(tmp_path / "a")
    with pytest.raises(FileNotFoundError) as elsewhere, new_folder(tmp_path / "a"):
        (tmp_path / "source").read_bytes()
    assert elsewhere.value.filename == str(tmp_path / "source")
    assert names(tmp_path) == []


def test_a_place_where_no_folder_can_be_made_is_told_at_once() -> None:
    with pytest.raises(OSError), new_file(Path("/proc/new.npz")):
        pass


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match=r"'.*taken' is a file, not a folder"), new_file(tmp_path / "taken" / "new.npz"):
        pass
