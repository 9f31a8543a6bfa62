"""What dead writers left is swept by the next write to the same folder; what living ones hold is not, whatever number
either has."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from understudy.core.drafts import new_file, new_folder, working_folder
from understudy.core.errors import DataError
from understudy.core.files import remove_directory, write_bytes


@contextmanager
def in_the_middle(work: Callable[[Callable[[], None]], None]) -> Iterator[int]:
    """A process in the middle of some work, which says where that is by calling what it is given; killed in the end."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:

        def middle() -> None:
            os.write(told, b"1")
            signal.pause()

        work(middle)
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"1"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


def another_writer(path: Path, kind: str = "draft") -> AbstractContextManager[int]:
    """A process that holds a draft of `path`."""

    def write(middle: Callable[[], None]) -> None:
        with working_folder(path, kind) as draft:
            (draft / "half").write_bytes(b"1")
            middle()

    return in_the_middle(write)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["draft", "file", "store"])
def test_only_the_drafts_of_dead_writers_are_swept(tmp_path: Path, kind: str) -> None:
    with another_writer(tmp_path / "a", kind) as writer:
        left = f".a.{writer}.understudy.{kind}"
        write_bytes(tmp_path / "z", b"")
        with new_folder(tmp_path / "a") as draft:
            (draft / "x").write_bytes(b"whole")
        assert names(tmp_path) == [left, "a", "z"]
    assert names(tmp_path) == [left, "a", "z"]
    with new_file(tmp_path / "b") as draft:  # whatever it is that is written there
        draft.write_bytes(b"1")
        assert left not in names(tmp_path)
    assert names(tmp_path) == ["a", "b", "z"]


def test_only_the_files_of_dead_writers_are_swept(tmp_path: Path) -> None:
    def write(middle: Callable[[], None]) -> None:
        os.fsync = lambda fd: middle()
        write_bytes(tmp_path / "a", b"1")

    with in_the_middle(write) as writer:
        left = f".a.{writer}.understudy.tmp"
        for name in ("a", "b"):
            write_bytes(tmp_path / name, b"2")
        assert names(tmp_path) == [left, "a", "b"]
    write_bytes(tmp_path / "b", b"3")
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"2"


def test_only_dead_processes_are_helped_to_remove(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    def remove(middle: Callable[[], None]) -> None:
        shutil.rmtree = lambda path: middle()  # type: ignore[assignment]
        remove_directory(tmp_path / "a")

    with in_the_middle(remove) as remover:
        write_bytes(tmp_path / "c", b"2")
        assert names(tmp_path) == [f".a.{remover}.understudy.old", "c"]
    write_bytes(tmp_path / "c", b"2")
    assert names(tmp_path) == ["c"]


def test_a_living_writer_of_our_own_number_is_not_disturbed(tmp_path: Path) -> None:
    """Two containers that share a folder."""
    with another_writer(tmp_path / "a") as writer:
        ours = tmp_path / f".a.{os.getpid()}.understudy.draft"
        (tmp_path / f".a.{writer}.understudy.draft").rename(ours)
        with pytest.raises(DataError, match="another process is writing it"), new_folder(tmp_path / "a"):
            raise AssertionError("never reached")
        assert (ours / "half").exists()
    with new_folder(tmp_path / "a"):
        assert not (ours / "half").exists()
    assert names(tmp_path) == ["a"]


def test_a_file_of_our_own_number_is_not_disturbed(tmp_path: Path) -> None:
    def write(middle: Callable[[], None]) -> None:
        os.fsync = lambda fd: middle()
        write_bytes(tmp_path / "a", b"1")

    with in_the_middle(write) as writer:
        ours = tmp_path / f".a.{os.getpid()}.understudy.tmp"
        (tmp_path / f".a.{writer}.understudy.tmp").rename(ours)
        write_bytes(tmp_path / "a", b"2")
        assert (ours.read_bytes(), (tmp_path / "a").read_bytes()) == (b"1", b"2")
        assert names(tmp_path) == [ours.name, "a"]


def test_nothing_that_only_looks_like_ours_is_removed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"1")
    (tmp_path / ".a.7.understudy.draft").symlink_to(tmp_path / "real")
    for name in (".a.8.tmp", ".a.b.understudy.tmp", ".a.9.understudy", "a.9.understudy.tmp", ".a.9.understudy.new"):
        (tmp_path / name).write_bytes(b"a file")
    (tmp_path / ".a.9.old").mkdir()
    before = names(tmp_path)
    write_bytes(tmp_path / "a", b"")
    with new_folder(tmp_path / "b"):
        pass
    assert names(tmp_path) == sorted([*before, "a", "b"])
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
    with pytest.raises(FileNotFoundError) as nowhere:
        write_bytes(tmp_path / "no" / "such", b"")
    assert nowhere.value.filename == str(tmp_path / "no" / "such")
    assert names(tmp_path) == []


def test_a_place_where_no_folder_can_be_made_is_told_at_once() -> None:
    with pytest.raises(OSError), new_file(Path("/proc/new.npz")):
        pass


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match=r"'.*taken' is a file, not a folder"), new_file(tmp_path / "taken" / "new.npz"):
        pass
