"""A new HDF5 file that is on the disk when it is said to be."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.core.errors import MissingPackageError


@contextmanager
def new_hdf5_file(path: Path, where: str) -> Iterator[Any]:
    """An h5py file to write; synced when it is left in peace, removed when an error leaves it."""
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(where, "writing HDF5 needs h5py", do="Run: pip install h5py") from error
    try:
        with h5py.File(path, "w", track_order=True) as file:
            yield file
        handle = os.open(path, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
