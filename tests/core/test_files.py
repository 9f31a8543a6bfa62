"""Files are the old one or the new one, and a changed byte never passes."""

import json
import os
from pathlib import Path

import pytest

from understudy.core.errors import UnderstudyError
from understudy.core.files import (
    json_bytes,
    publish_directory,
    read_bytes,
    read_json,
    read_sealed,
    remove_directory,
    seal,
    sha256_bytes,
    sha256_file,
    write_bytes,
    write_json,
)

CONTENT = {"name": "Żółw", "numbers": [1, 2.5, -3e-7], "nested": {"b": True, "a": None}, "text": 'quote " \\ 🐢'}


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_bytes(path, b"old")
    write_bytes(path, b"new" * 5_000_000)
    assert path.read_bytes() == b"new" * 5_000_000
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write_bytes(path, b"old")

    def full_disk(handle: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_link_in_place_of_a_draft_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / f".x.{os.getpid()}.tmp").symlink_to(tmp_path / "mine")
    write_bytes(tmp_path / "x", b"new")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / "x").read_bytes() == b"new"
    assert not (tmp_path / "x").is_symlink()


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:7]))
    write_bytes(tmp_path / "x", bytes(range(100)))
    assert (tmp_path / "x").read_bytes() == bytes(range(100))


def test_json_is_the_same_bytes_whatever_the_order(tmp_path: Path) -> None:
    assert json_bytes({"a": 1, "b": 2}) == json_bytes({"b": 2, "a": 1})
    write_json(tmp_path / "x.json", CONTENT)
    assert read_json(tmp_path / "x.json") == CONTENT


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"{", "not readable as JSON"), (b"\xff\xfe", "not readable"), (b"[1]", "got list, expected a JSON object")],
)
def test_a_bad_json_file_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UnderstudyError, match=told) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_missing_json_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnderstudyError, match=r"nowhere\.json: no such file"):
        read_json(tmp_path / "nowhere.json")
    with pytest.raises(UnderstudyError, match="not readable"):
        read_json(tmp_path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(UnderstudyError, match=r"deep\.json"):
        read_json(tmp_path / "deep.json")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe would make us wait for its writer, a device never ends."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "endless", "folder"):
        with pytest.raises(OSError, match="Not a regular file"):
            read_bytes(tmp_path / name)
        for read in (read_json, read_sealed):
            with pytest.raises(UnderstudyError, match=rf"{name}: not readable \(Not a regular file\)"):
                read(tmp_path / name)


def test_no_more_is_read_than_was_agreed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(10))
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", 10) == bytes(10)
    with pytest.raises(OSError, match="Larger than 9 bytes"):
        read_bytes(tmp_path / "file", 9)
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(UnderstudyError, match="Larger than"):
        read_json(tmp_path / "file")


def test_numbers_of_thousands_of_digits_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"a": ' + "9" * 5000 + "}")
    for read in (read_json, read_sealed):
        with pytest.raises(UnderstudyError, match="not readable as JSON"):
            read(tmp_path / "m")


def test_a_seal_reads_back(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(seal(CONTENT))
    assert read_sealed(tmp_path / "m") == CONTENT


def test_every_changed_byte_of_a_sealed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    whole = seal(CONTENT)
    for place in range(len(whole)):
        for mask in (0x01, 0x20, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            with pytest.raises(UnderstudyError):
                read_sealed(path)


def test_every_cut_of_a_sealed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    whole = seal(CONTENT)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UnderstudyError):
            read_sealed(path)


@pytest.mark.parametrize("text", ['{"a": 1}', '{"seal": 3}', '{"a": NaN, "seal": "x"}', '{"a": 1, "seal": null}'])
def test_what_was_never_sealed_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").write_text(text)
    with pytest.raises(UnderstudyError):
        read_sealed(tmp_path / "m")


def test_the_same_content_in_another_spelling_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(json.dumps(json.loads(seal(CONTENT))))
    with pytest.raises(UnderstudyError, match="seal"):
        read_sealed(tmp_path / "m")


def test_folders_are_published_and_removed_whole(tmp_path: Path) -> None:
    draft, final = tmp_path / ".draft", tmp_path / "final"
    draft.mkdir()
    (draft / "a").write_bytes(b"1")
    publish_directory(draft, final)
    assert not draft.exists()
    assert (final / "a").read_bytes() == b"1"
    remove_directory(final)
    assert list(tmp_path.iterdir()) == []


def test_digests_agree(tmp_path: Path) -> None:
    content = os.urandom(9_000_000)
    (tmp_path / "x").write_bytes(content)
    assert sha256_file(tmp_path / "x") == sha256_bytes(content)
    assert sha256_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
