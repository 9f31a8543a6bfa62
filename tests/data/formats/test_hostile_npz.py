"""Files that want more than to be read: no code runs, memory stays bounded, only our error escapes."""

import io
import os
import pickle
import resource
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.core.spec import Box
from understudy.data.dataset import Dataset
from understudy.data.episode import Array
from understudy.data.formats.columns import NAMES
from understudy.data.formats.flat import flat_recording
from understudy.data.formats.npz import open_npz

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


def read(path: Path) -> Dataset:
    return Dataset.from_episodes(open_npz(path).episodes(), BOX, name=path.name)


def refuse(path: Path, told: str = "dataset") -> None:
    with pytest.raises(DataError, match=told) as caught:
        read(path)
    assert path.name in str(caught.value)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.marker,)


SLOTS = ["observations", "actions", "rewards", "terminals", "unknown", "about", "metadata/policy", "infos/qpos"]


@pytest.mark.parametrize("slot", SLOTS)
def test_object_arrays_run_no_code(tmp_path: Path, slot: str) -> None:
    arrays = {name: np.zeros((ROWS, 1)) for name in ("observations", "actions", "rewards", "terminals")}
    arrays[slot] = np.array([Trap(tmp_path / "marker")] * ROWS, object)
    np.savez(tmp_path / "x.npz", allow_pickle=True, **arrays)
    refuse(tmp_path / "x.npz", f"array '{slot}.npy': refused: got object")
    assert not (tmp_path / "marker").exists()


def test_unread_objects_are_refused_too(tmp_path: Path) -> None:
    """`imitation` saves pickled infos; nobody would read them, and still they are not let in."""
    trap = Trap(tmp_path / "marker")
    infos = np.array([trap, trap, trap], object)
    arrays: dict[str, Any] = {
        "obs": np.zeros((6, 1)),
        "acts": np.zeros((5, 1)),
        "indices": np.zeros(0, int),
        "terminal": [True],
    }
    np.savez(tmp_path / "x.npz", allow_pickle=True, infos=infos, **arrays)
    refuse(tmp_path / "x.npz", r"array 'infos\.npy': refused: got object .* Save the file again without this array")
    np.savez(tmp_path / "y.npz", allow_pickle=True, scalar=np.array(trap, object), **arrays)
    refuse(tmp_path / "y.npz", "refused: got object")
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(trap))
        archive.writestr("observations.npy", npy(header("(8, 1)"), bytes(32)))
    refuse(tmp_path / "z.npz", "not a readable npz file")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "name", ["../marker.npy", "a/../../marker.npy", "/marker.npy", "..\\marker.npy", "C:\\marker.npy", "..", "../"]
)
def test_names_that_climb_are_refused_and_nothing_is_unpacked(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "x.npz").write_bytes(plain_bytes())
    with zipfile.ZipFile(folder / "x.npz", "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), npy(header("(8,)"), bytes(32)))
    refuse(folder / "x.npz", "refused: a member's name leads out of the file")
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "x.npz"]


@pytest.mark.parametrize(
    "name", ["a b", "x" * 300, "ünïcode", "new\nline", "\x1b[31mred", "con:aux", "%2e%2e", "obs#1"]
)
def test_odd_names_become_no_columns(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.npz").write_bytes(plain_bytes())
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr(f"{name}.npy", npy(header("(8,)"), bytes(32)))
    recording = open_npz(tmp_path / "x.npz")
    assert not next(recording.episodes()).extra
    assert all(note.isprintable() and len(note) < 300 for note in recording.notes)
    group = {"observations/" + name: np.zeros((2, 1)), "actions": np.zeros((2, 1)), "timeouts": [0, 1]}
    with pytest.raises(DataError, match="not a usable name of an observation group") as caught:
        flat_recording({key: np.asarray(value) for key, value in group.items()}, "x", "x")
    assert str(caught.value).isprintable()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["rewards.npy", "rewards"])
def test_a_member_comes_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.npz").write_bytes(plain_bytes())
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr(name, npy(header("(8,)"), bytes(32)))
    refuse(tmp_path / "x.npz", "holds two arrays named 'rewards'")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(tmp_path: Path, method: int) -> None:
    """They unfold a whole chunk at once, whatever size was promised."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
        archive.writestr("observations.npy", npy(header("(4096, 1024)"), bytes(1 << 24)))
    tracemalloc.start()
    refuse(tmp_path / "x.npz", "refused: packed in a way that NumPy does not write")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e6


def test_wrong_magic_is_refused(tmp_path: Path) -> None:
    for magic in (
        b"\x93NUMPZ\x01\x00",
        b"\x89HDF\r\n\x1a\n",
        b"\x93NUMPY\x09\x00",
        b"\x80\x04\x95\x00\x00\x00\x00\x00",
        b"",
    ):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("observations.npy", magic + npy(header("(8,)"), bytes(32))[8:])
        refuse(tmp_path / "x.npz", "not a readable npz file")


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
        header("(17179869184, 0)"),  # more rows than bytes, and no byte in any of them
        header("(0, 9223372036854775808)"),
        header("(17179869184,)", "'|V0'"),
        header("(17179869184,)", "'<U0'"),
        header("(True,)"),
        header("('a',)"),
        header("(2,)", "'|O'"),
        header("(2,)", "[('a', '<f4'), ('b', '|O')]"),
        header("(2,)", "'no such type'"),
        header("(2,)", "'" + "-" * 5000 + "'"),
        header("(" * 900 + ")" * 900),
        header("-" * 9000 + "1"),
        "{}",
        "((((",
        "{[]: 1}",
        "'''",
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
    monkeypatch.setattr("understudy.data.formats.npz.MEMORY_BUDGET", 500)
    (tmp_path / "x.npz").write_bytes(plain_bytes())
    refuse(tmp_path / "x.npz", "too large to read into memory")


@pytest.mark.parametrize("compressed", [True, False])
def test_flipped_bytes_are_told_in_our_words(tmp_path: Path, compressed: bool) -> None:
    """A damaged zip either still holds the same numbers, or raises our error."""
    whole = plain_bytes(compressed)
    path = tmp_path / "x.npz"
    path.write_bytes(whole)
    fingerprint = read(path).fingerprint
    refused = 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert read(path).fingerprint == fingerprint
        except DataError:
            refused += 1
    assert refused > len(whole) // 6


def test_side_arrays_cannot_lie_either(tmp_path: Path) -> None:
    for text in (header("(17179869184,)"), header("(-1,)"), header("(17179869184, 0)"), header("(15,)")):
        (tmp_path / "x.npz").write_bytes(plain_bytes())
        with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
            archive.writestr("side.npy", npy(text, bytes(64)))
        refuse(tmp_path / "x.npz", "refused")


@pytest.mark.parametrize(
    ("count", "told"), [(10_001, "refused: too many arrays: got 10,001, expected at most 10,000"), (60_000, "it lists")]
)
def test_a_million_tiny_members_are_not_looked_at(tmp_path: Path, count: int, told: str) -> None:
    """The directory of an archive is read at once, before anything can be said of its members."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for number in range(count):
            archive.writestr(zipfile.ZipInfo(f"a{number}.npy"), b"")
    refuse(tmp_path / "x.npz", told)


def test_many_members_that_share_their_bytes_are_a_bomb(tmp_path: Path) -> None:
    """Overlapping members: each is honest, together they unfold without end."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a0.npy", npy(header("(2097152,)"), bytes(1 << 23)))
        first = archive.infolist()[0]
        for number in range(1, 200):
            twin = copy(first)
            twin.filename = f"a{number}.npy"
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
    (tmp_path / "x.npz").write_bytes(content.getvalue())
    refuse(tmp_path / "x.npz", "refused as a zip bomb")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_only_our_error_escapes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(plain_bytes(data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 12))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzzed.npz"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    with suppress(DataError):
        read(path)


ALL_NAMES = sorted({name for names in NAMES.values() for name in names})
PARTS = (
    "observations/a",
    "observations.b",
    "next_observations/a",
    "extra/x",
    "infos/qpos",
    "indices",
    "split",
    "about",
)
KINDS = ("<f4", "<f8", "<f2", "|b1", "|u1", "<i8", "<u8", "<U3", "|S2", "<c8", "<M8[s]", "|V3", ">f4", ">i2")
VALUES = st.sampled_from([0, 0, 0, 1, 1, 2, -1, 1e300, float("nan"), float("inf")])


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Array]:
    """Arrays of any shape and kind under names that mean something; most of them fit together."""
    names = draw(st.lists(st.sampled_from([*ALL_NAMES, *PARTS]), unique=True, max_size=6))
    plain = ["observations", "actions"] if draw(st.booleans()) else []
    found = {}
    for name in dict.fromkeys([*plain, *names]):
        rows = draw(st.sampled_from([4, 4, 4, 4, 4, 4, 5, 1, 0]))
        shape = draw(st.sampled_from([(rows,), (rows, 1), (rows, 2), (rows, 2), (), (rows, 0), (rows, 2, 2)]))
        dtype = draw(st.sampled_from([*["<f4", "|b1"] * 6, *KINDS]))
        content = draw(st.lists(VALUES, min_size=4, max_size=4))
        with np.errstate(all="ignore"), suppress(ValueError, OverflowError):
            found[name] = np.resize(np.array(content, float), shape).astype(dtype)
    return found


@settings(max_examples=250, deadline=None)
@given(columns(), st.booleans())
@example({"action": np.zeros(4), "timeout": np.zeros(()), "timeouts": np.zeros(())}, True)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_set_of_columns_breaks_out(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Array], as_file: bool
) -> None:
    """Whatever is in a file, it is read or refused; what is read has as many steps as it says."""
    with suppress(DataError):
        if as_file:
            path = tmp_path_factory.getbasetemp() / "columns.npz"
            np.savez(path, allow_pickle=False, **arrays)
            recording = open_npz(path)
        else:
            recording = flat_recording(arrays, "x", "x")
        episodes = list(recording.episodes())
        assert sum(map(len, episodes)) == recording.steps
        Dataset.from_episodes(episodes, BOX)


def test_two_arrays_of_one_role_that_cannot_be_compared(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"act": np.zeros(4), "action": np.zeros(4, "V3"), "obs": np.zeros(4)}
    np.savez(tmp_path / "x.npz", allow_pickle=False, **columns)
    refuse(tmp_path / "x.npz", "act")


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from understudy.core.errors import DataError
from understudy.data.formats.npz import open_npz
for megabytes in (2, 12, 24):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
    try:
        for episode in open_npz(Path(sys.argv[1])).episodes():
            pass
    except DataError as error:
        print(error)
"""


def test_little_memory_is_told_in_our_words(tmp_path: Path) -> None:
    """An honest file that does not fit: no MemoryError escapes."""
    rows = 1 << 18
    ends = (np.arange(rows) % 1000 == 999).astype(float)
    np.savez(tmp_path / "x.npz", observations=np.zeros((rows, 32), np.float32), actions=np.zeros(rows), timeouts=ends)
    command = [sys.executable, "-c", LITTLE_MEMORY, str(tmp_path / "x.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.count("x.npz") == 3, done.stderr
