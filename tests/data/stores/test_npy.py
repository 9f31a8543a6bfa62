"""Column files: NumPy reads them, and their header does not move when rows are added."""

from contextlib import suppress
from io import BytesIO
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.data.fingerprint import ColumnFacts
from understudy.data.stores.npy import map_column, npy_header, read_array, write_column

DTYPES = ["uint8", "int64", "float32", "float64", "bool"]


@given(st.sampled_from(DTYPES), st.lists(st.integers(1, 300), max_size=4), st.integers(0, 10**18))
def test_the_header_has_one_length_for_any_number_of_rows(dtype: str, row: list[int], rows: int) -> None:
    empty, full = (npy_header(np.dtype(dtype), (count, *row)) for count in (0, rows))
    assert len(empty) == len(full)
    assert len(empty) % 64 == 0
    version = np.lib.format.read_magic(file := BytesIO(full))
    assert version == (1, 0)
    assert np.lib.format.read_array_header_1_0(file) == ((rows, *row), False, np.dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (7, 2), (3, 2, 2), (0, 4)])
def test_numpy_reads_what_we_write(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    column = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    facts = write_column(tmp_path / "c.npy", column, [column[:2], column[2:]])
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy", allow_pickle=False), column, strict=True)
    np.testing.assert_array_equal(map_column(tmp_path / "c.npy", facts, "x", verify=True), column, strict=True)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    column = np.arange(6, dtype=np.float32)
    facts = write_column(tmp_path / "c.npy", column, [column])
    content = (tmp_path / "c.npy").read_bytes()
    for place in range(len(content)):
        (tmp_path / "c.npy").write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(DataError, match="x: was changed or damaged"):
            map_column(tmp_path / "c.npy", facts, "x", verify=True)


@pytest.mark.parametrize("shape", [(10**15,), (10**9, 10**9)])
def test_a_promise_of_more_than_the_file_is_refused_at_once(tmp_path: Path, shape: tuple[int, ...]) -> None:
    (tmp_path / "c.npy").write_bytes(npy_header(np.dtype("float32"), shape) + b"1234")
    with pytest.raises(DataError, match="header or size"):
        map_column(tmp_path / "c.npy", ColumnFacts("float32", shape, "0"), "x", verify=False)


HEADERS = (
    "((((",
    "{[]: 1}",
    "1()",
    "-" * 9000 + "1",
    "9" * 5000,
    "'''",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': ('<f4', (1000000000, 1000)), 'fortran_order': False, 'shape': (1,)}",
    "{'descr': 'f4,,', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': {'names': ['a'], 'formats': ['O']}, 'fortran_order': False, 'shape': (1,)}",
)


def npy(header: str, version: int, rest: bytes = b"") -> bytes:
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode("latin1") + rest


def test_headers_that_are_none_are_told_in_our_words(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    for header, version in product(HEADERS, [1, 2, 3]):
        (tmp_path / "x.npy").write_bytes(npy(header, version))
        with pytest.raises(DataError, match=r"x\.npy: not a readable \.npy file"):
            read_array(tmp_path / "x.npy")
    assert not recwarn.list, "Python's parser has nothing to say to a person"


LETTERS = "(){}[]'\":,.<>fOUi489 \n\t\\abdeshrp_xL"
SOUND = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"


@given(st.text(LETTERS, max_size=60), st.integers(0, len(SOUND)), st.sampled_from([1, 2, 3]), st.binary(max_size=16))
def test_whatever_a_header_says_only_our_error_escapes(text: str, place: int, version: int, rest: bytes) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "x.npy"
        for header in (text, SOUND[:place] + text + SOUND[place:]):
            file.write_bytes(npy(header, version, rest))
            with suppress(DataError):
                read_array(file)


@pytest.mark.parametrize("dtype", [*DTYPES, ">f8", "<U3", "complex64"])
def test_arrays_of_any_order_and_numbers_are_read(tmp_path: Path, dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    for values in (array, np.asfortranarray(array), array[0, 0], array[:0]):
        np.save(tmp_path / "x.npy", values)
        np.testing.assert_array_equal(read_array(tmp_path / "x.npy"), values, strict=True)
