"""A file that is only appended to, while others may fill its disk or delete it."""

import errno
import os
from pathlib import Path
from typing import final

from understudy.core.files import naming


@final
class GrowingFile:
    """Every write has reached the system when it returns; errors name the file."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self._file = path.open("xb" if new else "ab", buffering=0)
        found = os.fstat(self.fileno())
        self._size, self._links = found.st_size, found.st_nlink

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, content: bytes) -> None:
        with naming(self.path):
            left = memoryview(content)
            while left:
                left = left[self._file.write(left) :]
        self._size += len(content)

    def check_present(self) -> None:
        """An error if the file was deleted, replaced or cut meanwhile: what is written may then be nowhere."""
        found = os.fstat(self.fileno())
        if self._links and not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        if found.st_size != self._size:
            raise OSError(errno.EBUSY, "Changed by another process", str(self.path))

    def sync(self) -> None:
        with naming(self.path):
            os.fsync(self.fileno())

    def close(self) -> None:
        self._file.close()
