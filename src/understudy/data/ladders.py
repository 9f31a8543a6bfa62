"""Ladders: datasets of one task at graded quality, from the history of one run. Some come with the library.

A ladder is a folder with `ladder.json`, which says of every level what it holds and which files it lies in.
FOLDER/medium names a level wherever a dataset is asked for; of a ladder that comes with the library the folder is its
name alone (`hopper-ladder/medium`), unless a file or folder of that name lies here. Files are compared with their
sha256 before anything is read from them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, final

from pydantic import Field

from understudy.core.errors import DataError, UnderstudyError, did_you_mean, near
from understudy.core.facts import Facts, Whole
from understudy.core.files import read_json, sha256_file
from understudy.data.episode import Episode
from understudy.data.formats.npz import open_npz
from understudy.data.recording import Recording, environment_name
from understudy.data.scores import normalized_score

CARD = "ladder.json"
FORMAT = 1
LEVELS = ("random", "medium-replay", "medium", "medium-expert", "expert")
"""From the worst to the best, as D4RL names them."""


class PartFacts(Facts):
    """A packed file of a ladder."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LevelFacts(Facts):
    """What a ladder says of a level."""

    steps: Whole
    episodes: Whole
    return_mean: float
    return_std: float
    fingerprint: str
    """sha256 of the content."""
    made_by: str
    """Who played it, in words."""
    parts: list[PartFacts] = Field(default_factory=list)
    """Packed files that it lies in, one behind the other; none: it is a store of the level's name."""


class LadderFacts(Facts):
    """What a ladder says of itself."""

    format: Whole
    env: str
    reference: str | Annotated[list[float], Field(min_length=2, max_length=2)] = ""
    """The scale of scores: a known id such as `hopper-medium-v2`, or [low, high]. Empty: none."""
    origin: str
    """The run it comes from, in words."""
    levels: dict[str, LevelFacts]


@final
@dataclass(frozen=True)
class Ladder:
    path: Path
    name: str
    """What it is called: its folder, or its name alone if it comes with the library."""

    @cached_property
    def facts(self) -> LadderFacts:
        where = f"ladder '{self.name}'"
        try:
            facts = LadderFacts.parse(read_json(self.path / CARD), CARD)
        except UnderstudyError as error:
            raise DataError(where, f"not readable ({error})") from error
        if facts.format != FORMAT:
            raise DataError(where, "written in another format", got=facts.format, expected=FORMAT)
        return facts

    @property
    def levels(self) -> dict[str, LevelFacts]:
        """From the worst to the best."""
        named = self.facts.levels
        return {name: named[name] for name in (*LEVELS, *sorted(named.keys() - set(LEVELS))) if name in named}

    def level(self, name: str) -> LevelFacts:
        levels = self.levels
        if name not in levels:
            what = f"has no level '{name}'" if name else "is several datasets"
            told = (
                did_you_mean(name, levels) if name else f"Say which: {', '.join(f'{self.name}/{n}' for n in levels)}."
            )
            raise DataError(f"ladder '{self.name}'", what, do=told)
        return levels[name]

    def score(self, level: LevelFacts) -> float | None:
        """Of the mean return; None where the ladder names no scale."""
        scale = self.facts.reference
        if not scale:
            return None
        return normalized_score(scale if isinstance(scale, str) else (scale[0], scale[1]), level.return_mean)

    def recording(self, name: str) -> Recording:
        """A level that lies in packed files."""
        level, where = self.level(name), f"dataset '{self.name}/{name}'"
        if not level.parts:
            raise DataError(where, "no such file", expected=f"a store, as {CARD} says")
        parts = [self._part(part, where) for part in level.parts]

        def play() -> Iterator[Episode]:
            for part in parts:
                yield from part.episodes()

        steps = sum(part.steps for part in parts)
        if steps != level.steps:
            raise DataError(where, f"holds other steps than {CARD} says", got=steps, expected=level.steps)
        return Recording(f"{self.name}/{name}", steps, play, parts[0].space, "ladder", environment_name(self.facts.env))

    def _part(self, part: PartFacts, where: str) -> Recording:
        path = self.path / part.file
        if not path.is_file():
            raise DataError(where, f"its file '{path.name}' is missing")
        if (found := sha256_file(path)) != part.sha256:
            what = f"its file '{path.name}' was changed or damaged"
            raise DataError(where, what, got=f"sha256 {found[:12]}…", expected=f"{part.sha256[:12]}…")
        return open_npz(path)


def shipped_ladders() -> Mapping[str, Ladder]:
    """Those that come with the library, by name."""
    root = Path(str(files("understudy.data"))) / "shipped"
    folders = sorted(folder.parent for folder in root.glob(f"*/{CARD}"))
    return {name: Ladder(folder, name) for folder in folders for name in [f"{folder.name}-ladder"]}


def find_level(origin: str) -> tuple[Ladder, str] | None:
    """The ladder and the level that words name which are no path of their own; None if they name none.

    The level is empty where a ladder is named as a whole.
    """
    path = Path(origin)
    for folder, level in ((path, ""), (path.parent, path.name)):
        if (folder / CARD).is_file():
            return Ladder(folder, str(folder)), level
    ladder, _, level = origin.partition("/")
    shipped = shipped_ladders()
    return (shipped[ladder], level) if ladder in shipped else None


def suggested_level(origin: str) -> str:
    """A sentence for words that look like a shipped level; empty if they do not."""
    known = [f"{name}/{level}" for name, ladder in shipped_ladders().items() for level in ladder.levels]
    close = near(origin, known)
    return f"Did you mean '{close}'?" if close else ""
