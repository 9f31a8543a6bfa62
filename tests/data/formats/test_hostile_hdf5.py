"""HDF5 files that point elsewhere, lie about their size, or are damaged: refused in a sentence, in bounded memory."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdf5_makers import ESCAPED, PASSED, REFUSED, flat_columns, in_child, write_columns
from understudy.core.errors import DataError
from understudy.data.formats.d4rl import open_d4rl
from understudy.data.formats.hdf5 import open_hdf5_file

Spoil = Callable[[h5py.File, Path], None]


def spoilt(folder: Path, spoil: Spoil) -> Path:
    """A whole file whose observations were replaced."""
    path = write_columns(folder / "x.hdf5", flat_columns())
    with h5py.File(path, "a") as file:
        del file["observations"]
        spoil(file, folder)
    return path


def play(path: Path) -> None:
    for _ in open_d4rl(path).episodes():
        pass


def refuse(path: Path, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        play(path)
    assert str(caught.value).count("\n") == 0


def external_link(file: h5py.File, folder: Path) -> None:
    write_columns(folder / "secret.hdf5", flat_columns())
    file["observations"] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/observations")


def soft_link(file: h5py.File, folder: Path) -> None:
    file["observations"] = h5py.SoftLink("/next_observations")


def soft_link_to_external(file: h5py.File, folder: Path) -> None:
    write_columns(folder / "secret.hdf5", flat_columns())
    file["hop"] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/")
    file["observations"] = h5py.SoftLink("/hop/observations")


def external_storage(file: h5py.File, folder: Path) -> None:
    (folder / "secret.bin").write_bytes(bytes(15 * 3 * 4))
    plan = [(str(folder / "secret.bin"), 0, h5py.h5f.UNLIMITED)]
    file.create_dataset("observations", (15, 3), "f4", external=plan)


def virtual(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((15, 3), "f4")
    layout[:] = h5py.VirtualSource(str(write_columns(folder / "secret.hdf5", flat_columns())), "observations", (15, 3))
    file.create_virtual_dataset("observations", layout)


def virtual_without_source(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((15, 3), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "missing.hdf5"), "observations", (15, 3))
    file.create_virtual_dataset("observations", layout, fillvalue=0)


def references(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", data=[file["rewards"].ref] * 15, dtype=h5py.ref_dtype)


def regions(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", data=[file["rewards"].regionref[:3]] * 15, dtype=h5py.regionref_dtype)


def strings(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", data=["x"] * 15)


def ragged(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", (15,), dtype=h5py.vlen_dtype(np.float32))


def compound(file: h5py.File, folder: Path) -> None:
    file["observations"] = np.zeros(15, [("x", "f4"), ("y", "i4")])


def opaque(file: h5py.File, folder: Path) -> None:
    file["observations"] = np.zeros(15, "V12")


def wide(file: h5py.File, folder: Path) -> None:
    file["observations"] = np.zeros((15, 3), np.longdouble)


def named_type(file: h5py.File, folder: Path) -> None:
    file["observations"] = np.dtype("f4")


def never_written(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", (15, 3), "f4")


def partly_written(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", (15, 3), "f4", chunks=(5, 3))[:5] = 1.0


def empty(file: h5py.File, folder: Path) -> None:
    file["observations"] = h5py.Empty("f4")


def packed_otherwise(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", data=np.zeros((15, 3), np.float32), chunks=(15, 3), scaleoffset=2)


def packed_twice(file: h5py.File, folder: Path) -> None:
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((15, 3))
    plan.set_deflate(9)
    plan.set_filter(h5py.h5z.FILTER_LZF)
    space = h5py.h5s.create_simple((15, 3))
    h5py.h5d.create(file.id, b"observations", h5py.h5t.NATIVE_FLOAT, space, plan)


CASES: list[tuple[Spoil, str]] = [
    (external_link, "'observations': refused: got a link to another file"),
    (soft_link, "'observations': refused: got a soft link"),
    (soft_link_to_external, "refused: got a"),
    (external_storage, "'observations': refused: got data stored in another file"),
    (virtual, "'observations': refused: got a virtual dataset"),
    (virtual_without_source, "'observations': refused: got a virtual dataset"),
    (references, "refused: got references"),
    (regions, "refused: got references"),
    (strings, "refused: got (text|values of variable length)"),
    (ragged, "refused: got values of variable length"),
    (compound, "refused: got compound records"),
    (opaque, "refused: got opaque bytes"),
    (wide, "expected numbers of at most 8 bytes"),
    (named_type, "'observations': not a group"),
    (never_written, "'observations': was never written: got 0 of 180 bytes"),
    (partly_written, "'observations': parts of it were never written: got 1 of 3 chunks"),
    (empty, "'observations': is declared but empty"),
    (packed_otherwise, "uses a filter we do not read: got filter 6"),
    (packed_twice, "expected packed at most once"),
]


@pytest.mark.parametrize(("spoil", "match"), CASES, ids=[spoil.__name__ for spoil, _ in CASES])
def test_what_is_not_plain_numbers_in_this_file_is_refused(tmp_path: Path, spoil: Spoil, match: str) -> None:
    refuse(spoilt(tmp_path, spoil), match)


def test_the_same_file_unspoilt_is_read(tmp_path: Path) -> None:
    play(write_columns(tmp_path / "x.hdf5", flat_columns()))


@pytest.mark.parametrize("name", ["infos", "observations"])
def test_links_inside_groups_are_refused_too(tmp_path: Path, name: str) -> None:
    def link(file: h5py.File, folder: Path) -> None:
        file.create_group(name)["action_log_probs"] = h5py.SoftLink("/rewards")

    refuse(spoilt(tmp_path, link), "'action_log_probs': refused: got a soft link")


def test_a_group_inside_itself_ends(tmp_path: Path) -> None:
    def coil(file: h5py.File, folder: Path) -> None:
        group = file.create_group("observations")
        group["again"] = group

    refuse(spoilt(tmp_path, coil), "nested too deep")


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.data.formats.hdf5_column.LINK_LIMIT", 4)
    refuse(write_columns(tmp_path / "x.hdf5", flat_columns()), "too many members")


def test_a_member_named_like_a_path_cannot_be_reached(tmp_path: Path) -> None:
    with open_hdf5_file(write_columns(tmp_path / "x.hdf5", {"a/b": np.zeros(3)})) as root:
        for name in ("a/b", "/a", ".", ""):
            with pytest.raises(DataError, match="name is a path"):
                root.column(name)
        assert root.group("a").column("b").whole().tolist() == [0, 0, 0]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04.", b"\x89HDF", b"\x89HDF\r\n\x1a\n", b"\0" * 600])
def test_wrong_magic(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.hdf5").write_bytes(content)
    refuse(tmp_path / "x.hdf5", "not an HDF5 file|not readable as HDF5")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    refuse(tmp_path / "x.hdf5", "cannot be opened")
    refuse(tmp_path, "cannot be opened")


ROWS = (64 << 30) // 12


def declared(file: h5py.File, folder: Path) -> None:
    """64 GiB that nobody wrote, in a few kilobytes."""
    file.create_dataset("observations", (ROWS, 3), "f4", chunks=(1 << 16, 3))


def declared_at_once(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", (ROWS, 3), "f4")


def zeros_packed(file: h5py.File, folder: Path) -> None:
    """400 MB of zeros, really written and packed."""
    file.create_dataset("observations", (1 << 25, 3), "f4", chunks=(1 << 23, 3), compression="gzip")
    raw = zlib.compress(bytes((1 << 23) * 12), 9)
    for chunk in range(4):
        file["observations"].id.write_direct_chunk((chunk << 23, 0), raw)


def one_giant_chunk(file: h5py.File, folder: Path) -> None:
    """Fifteen rows in a chunk for a hundred million."""
    data = file.create_dataset(
        "observations", (15, 3), "f4", chunks=(100_000_000, 3), maxshape=(None, 3), compression=9
    )
    data.id.write_direct_chunk((0, 0), zlib.compress(bytes(15 * 12)))


def chunk_that_grows(file: h5py.File, folder: Path) -> None:
    """A chunk of 180 bytes whose packed form unfolds to 400 MB."""
    data = file.create_dataset("observations", (15, 3), "f4", chunks=(15, 3), compression="gzip")
    packer = zlib.compressobj(1)
    data.id.write_direct_chunk((0, 0), b"".join(packer.compress(bytes(1 << 20)) for _ in range(400)) + packer.flush())


def many_names(file: h5py.File, folder: Path) -> None:
    """The same 20 MB under hundreds of names."""
    group = file.create_group("observations")
    group["0"] = np.zeros((15, 350_000), np.float32)
    for number in range(1, 300):
        group[str(number)] = group["0"]


@pytest.mark.parametrize(
    "spoil", [declared, declared_at_once, zeros_packed, one_giant_chunk, chunk_that_grows, many_names]
)
def test_bombs_are_refused_before_they_unfold(tmp_path: Path, spoil: Spoil) -> None:
    path = spoilt(tmp_path, spoil)
    before = in_child(lambda: None)[1]
    code, used = in_child(lambda: play(path), memory=600 << 20)
    assert code == REFUSED
    assert used - before < 120_000
    refuse(path, "refused as a bomb|never written")


def test_a_large_honest_file_is_no_bomb(tmp_path: Path) -> None:
    columns = flat_columns(episodes=3, steps=200)
    columns["observations"] = columns["next_observations"] = np.zeros((600, 15_000), np.float32)
    columns["observations"][:, ::50] = np.random.default_rng(0).standard_normal((600, 300))
    columns["next_observations"] = np.roll(columns["observations"], -1, 0)
    play(write_columns(tmp_path / "x.hdf5", columns, compression="gzip", compression_opts=1))


@pytest.mark.parametrize(
    "packing", [{}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf", "fletcher32": True}]
)
def test_every_usual_packing_is_read(tmp_path: Path, packing: dict[str, Any]) -> None:
    columns = flat_columns()
    path = write_columns(tmp_path / "x.hdf5", columns, chunks=True, **packing)
    with open_hdf5_file(path) as root:
        for name, values in columns.items():
            column = root.column(name)
            assert column.dtype == values.dtype
            np.testing.assert_array_equal(column[2:9], values[2:9])
            np.testing.assert_array_equal(column.whole(), values)


def test_the_other_byte_order_is_turned(tmp_path: Path) -> None:
    path = write_columns(tmp_path / "x.hdf5", {"x": np.arange(5, dtype=">f8")})
    with open_hdf5_file(path) as root:
        assert root.column("x").whole().tolist() == [0, 1, 2, 3, 4]
        assert root.column("x").whole().dtype.isnative


def test_a_closed_file_says_so(tmp_path: Path) -> None:
    with open_hdf5_file(write_columns(tmp_path / "x.hdf5", {"x": np.zeros(3)})) as root:
        column = root.column("x")
    with pytest.raises(DataError):
        column.whole()


PACKINGS: tuple[dict[str, Any], ...] = (
    {},
    {"compression": "gzip", "chunks": True},
    {"compression": "lzf", "chunks": True},
)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_only_our_error_escapes_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """In a child: a crash of the HDF5 library itself would be seen as a signal."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.hdf5"
    packing = data.draw(st.sampled_from(PACKINGS))
    whole = write_columns(path, flat_columns(), **packing).read_bytes()
    seed = data.draw(st.integers(0, 2**32 - 1))

    def damage_and_play() -> None:
        rng = np.random.default_rng(seed)
        for _ in range(10):
            content = bytearray(whole)
            for place in rng.integers(0, len(content), rng.integers(1, 8)):
                content[place] = rng.integers(0, 256)
            path.write_bytes(content[: rng.integers(0, len(content))] if rng.random() < 0.1 else content)
            try:
                play(path)
            except DataError:
                continue

    code, _ = in_child(damage_and_play, memory=2 << 30)
    assert code == PASSED, "another error escaped" if code == ESCAPED else f"ended with {code}"
