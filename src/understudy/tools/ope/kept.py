"""What FQE said of a candidate with one seed, kept in a file that is named after everything it depends on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.errors import CheckpointError
from understudy.core.facts import SealedFacts
from understudy.core.files import json_bytes, seal, sha256_bytes, write_bytes

FORMAT = 1


class Kept(SealedFacts):
    """E_{a~π} Q(s₀,a) of every episode's start, the largest |Q| that was met, and what no return can be beyond."""

    FORMAT = FORMAT

    starts: list[float]
    largest: float
    bound: float

    @classmethod
    def found(cls, path: Path) -> "Kept | None":
        """What lies there; nothing if it was damaged, for then it is made anew."""
        try:
            return cls.read(path, f"file '{path}'") if path.is_file() else None
        except CheckpointError:
            return None

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, seal({"format": FORMAT, **self.model_dump()}))


def place(folder: Path, depends_on: Mapping[str, Any]) -> Path:
    """Where it lies."""
    return folder / f"{sha256_bytes(json_bytes({**depends_on, 'format': FORMAT}))[:32]}.json"
