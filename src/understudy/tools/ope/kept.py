"""What FQE said of a candidate with one seed, kept in a file that is named after everything it depends on, which
episodes the seed drew included, and says so.

It is believed only if its seal fits, if it is about what its name promises, and if its numbers can be those of these
episodes: whatever was damaged, swapped or made of other data is made anew.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from understudy.core.errors import CheckpointError, ConfigError
from understudy.core.facts import SealedFacts
from understudy.core.files import json_bytes, seal, sha256_bytes, write_bytes

LETTERS, CARD = 64, 4096
"""Of a file: what a number takes at most, and all the rest."""


class Kept(SealedFacts):
    """E_{a~π} Q(s₀,a) of every episode's start, and the largest |Q| that was met."""

    FORMAT: ClassVar = 3
    """Another one also where FQE comes to say something else: it is part of every digest."""

    about: str
    """The digest of all it depends on."""
    starts: list[float]
    largest: float

    @classmethod
    def open(cls, path: Path, about: str, episodes: int) -> "Kept":
        """What lies there, or an error if it is not what was kept of this."""
        where = f"file '{path}'"
        kept = cls.read(path, where, CARD + LETTERS * episodes)
        if kept.about != about:
            raise CheckpointError(where, "is about something else", got=kept.about[:32], expected=about[:32])
        if len(kept.starts) != episodes:
            raise CheckpointError(where, "is of other episodes", got=len(kept.starts), expected=episodes)
        if max(map(abs, kept.starts)) > kept.largest:
            raise CheckpointError(where, "holds values above the largest", expected=f"at most {kept.largest:g}")
        return kept

    def write(self, path: Path) -> None:
        write_bytes(path, seal({"format": self.FORMAT, **self.model_dump()}))


def keep(path: Path, about: str, starts: list[float], largest: float) -> None:
    """Critics that went beyond all numbers said nothing that could be kept."""
    if math.isfinite(largest):
        Kept(about=about, starts=starts, largest=largest).write(path)


def digest(depends_on: Mapping[str, Any]) -> str:
    return sha256_bytes(json_bytes({**depends_on, "format": Kept.FORMAT}))


def place(folder: Path, about: str) -> Path:
    """Where it lies."""
    return folder / f"{about[:32]}.json"


def check_folder(folder: Path) -> None:
    """It can be written to: found out before anything is trained."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / PROBE, b"")
        (folder / PROBE).unlink(missing_ok=True)  # somebody else may have looked, too
    except OSError as error:
        raise ConfigError(
            "out", f"cannot keep anything ({error.strerror})", got=f"'{folder}'", do="Name another folder."
        ) from error


PROBE = ".probe"
