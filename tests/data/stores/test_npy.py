"""Column files: NumPy reads them, and their header does not move when rows are added."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.errors import DataError
from understudy.data.fingerprint import ColumnFacts
from understudy.data.stores.npy import map_column, npy_header, write_column

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
