"""A new HDF5 file that is on the disk when it is said to be."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.core.errors import MissingPackageError


@contextmanager
def new_hdf5_file(path: Path, where: str) -> Iterator[tuple[Any, "Sink"]]:
    """An h5py file to write, and the sink it goes to, to be asked for trouble now and then.

    Synced when it is left in peace, removed when an error leaves it.
    """
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(where, "writing HDF5 needs h5py", do="Run: pip install h5py") from error
    try:
        with Sink(path) as sink:
            try:
                with h5py.File(sink, "w", track_order=True) as file:
                    yield file, sink
            finally:
                sink.tell_trouble()
            os.fsync(sink.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class Sink(io.FileIO):
    """A file that takes everything, and says afterwards what did not fit.

    The HDF5 library cannot be told of a full disk: objects that fail to be closed are closed again when the process
    ends, which has crashed it. So it never hears of one; its file is not kept then.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.trouble: BaseException | None = None

    def write(self, content: Any, /) -> int:
        """All of it: a disk that fills up takes a part without a word, and tells with the next one."""
        rest = memoryview(content).cast("B")
        size = len(rest)
        try:
            while rest and self.trouble is None:
                rest = rest[super().write(rest) :]
        except BaseException as error:  # a signal's too: it may not unwind the library's frames
            self.trouble = error
        return size

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except BaseException as error:
            self.trouble = self.trouble or error
            return size or 0

    def tell_trouble(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.trouble is not None:
            raise self.trouble
