"""Files that want more than to be read: no code runs, memory stays bounded, only our error escapes."""

import io
import os
import pickle
import resource
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.core.spec import Box
from understudy.data.npz import read_npz

BOX = Box((-1.0,), (1.0,))
ROWS = 8


def plain_bytes(compressed: bool = True) -> bytes:
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(
        content,
        observations=np.zeros((ROWS, 3), np.float32),
        actions=np.zeros((ROWS, 1), np.float32),
        rewards=np.zeros(ROWS, np.float32),
        terminals=np.arange(ROWS) == ROWS - 1,
    )
    return content.getvalue()


def refuse(path: Path, told: str = "dataset") -> None:
    with pytest.raises(DataError, match=told) as caught:
        read_npz(path, BOX)
    assert path.name in str(caught.value)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("slot", ["observations", "actions", "rewards", "terminals", "unknown"])
def test_object_arrays_run_no_code(tmp_path: Path, slot: str) -> None:
    arrays = {name: np.zeros((ROWS, 1)) for name in ("observations", "actions", "rewards", "terminals")}
    arrays[slot] = np.array([Trap(tmp_path / "marker")] * ROWS, object)
    np.savez(tmp_path / "x.npz", allow_pickle=True, **arrays)
    refuse(tmp_path / "x.npz", f"array '{slot}.npy': refused: got object")
    assert not (tmp_path / "marker").exists()


def test_structured_arrays_with_objects_run_no_code(tmp_path: Path) -> None:
    record = np.array([(1.0, Trap(tmp_path / "marker"))], [("a", "f4"), ("b", "O")])
    np.savez(tmp_path / "x.npz", allow_pickle=True, observations=record)
    refuse(tmp_path / "x.npz", "refused")
    assert not (tmp_path / "marker").exists()


def test_a_pickle_is_not_an_npz(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(pickle.dumps(Trap(tmp_path / "marker")))
    refuse(tmp_path / "x.npz", "not a readable npz file")
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        archive.writestr("observations.npy", pickle.dumps(Trap(tmp_path / "marker")))
    refuse(tmp_path / "y.npz", "not a readable npz file")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"observations,actions\n1,2\n", plain_bytes()[:-30], b"\0" * 4096])
def test_what_is_no_zip_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    refuse(tmp_path / "x.npz", "not a readable npz file")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "x.npz", "no such file")
    refuse(tmp_path)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def header(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "text",
    [
        header("(17179869184,)"),  # 64 GiB in a hundred bytes
        header("(10**30,)"),
        header("(9223372036854775807, 9223372036854775807)"),
        header("(-1,)"),
        header("(-4, -4)"),
        header("(True,)"),
        header("('a',)"),
        header("(2,)", "'|O'"),
        header("(2,)", "[('a', '<f4'), ('b', '|O')]"),
        header("(2,)", "'no such type'"),
        header("(2,)", "'" + "-" * 5000 + "'"),
        header("(" * 900 + ")" * 900),
        header("-" * 9000 + "1"),
        "{}",
        "__import__('os').mkdir('marker')",
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("observations.npy", npy(text, bytes(64)))
    tracemalloc.start()
    refuse(tmp_path / "x.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8e6
    assert not Path("marker").exists()


def bomb(path: Path, head: bytes, megabytes: int) -> None:
    """A member of zeros: a thousandth of its size on disk."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("observations.npy", "w", force_zip64=True) as member,
    ):
        member.write(head)
        for _ in range(megabytes):
            member.write(bytes(1 << 20))


@pytest.mark.parametrize("long_header", [False, True])
def test_a_bomb_is_refused_before_it_unfolds(tmp_path: Path, long_header: bool) -> None:
    rows = (128 << 20) // 4
    honest = npy(header(f"({rows},)"))
    endless = b"\x93NUMPY\x02\x00" + (128 << 20).to_bytes(4, "little")
    bomb(tmp_path / "x.npz", endless if long_header else honest, 128)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuse(tmp_path / "x.npz", "refused as a zip bomb: got .* bytes that unpack to 134,")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_the_budget_is_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.data.npz.MEMORY_BUDGET", 500)
    (tmp_path / "x.npz").write_bytes(plain_bytes())
    refuse(tmp_path / "x.npz", "too large to read into memory")


@pytest.mark.parametrize("compressed", [True, False])
def test_flipped_bytes_are_told_in_our_words(tmp_path: Path, compressed: bool) -> None:
    """A damaged zip either still holds the same numbers, or raises our error."""
    whole = plain_bytes(compressed)
    path = tmp_path / "x.npz"
    path.write_bytes(whole)
    fingerprint = read_npz(path, BOX).fingerprint
    refused = 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert read_npz(path, BOX).fingerprint == fingerprint
        except DataError:
            refused += 1
    assert refused > len(whole) // 6


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_only_our_error_escapes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(plain_bytes(data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 12))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzzed.npz"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    with suppress(DataError):
        read_npz(path, BOX)
