"""A recording: what a reader makes of a stranger's file. Episodes in their own order and precision, one at a time."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from understudy.core.spec import ActionSpace
from understudy.data.episode import Episode

ENVIRONMENT = re.compile(r"[A-Za-z0-9_./-]{1,200}")
"""No colon: Gymnasium imports what stands before one."""

NO_REWARDS = {"rewards": "absent"}
"""The fact of a recording in which nobody kept rewards."""


@final
@dataclass(frozen=True)
class Recording:
    """Lazy and re-iterable: `episodes()` starts from the beginning every time and holds little in memory."""

    name: str
    """The file or id, for messages."""
    steps: int
    """How many there are in all."""
    play: Callable[[], Iterator[Episode]]
    """Makes a fresh iterator; episodes are structurally whole but not yet checked."""
    space: ActionSpace | None = None
    """The action space, if the file itself says it."""
    layout: str = "episodes"
    """Which of the known layouts was found."""
    env: str = ""
    """The environment the file says it came from. A word to show, never to import."""
    notes: tuple[str, ...] = ()
    """What the reader decided or restored, in sentences."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Plain facts of the file: reference scores, recipe, author."""

    @property
    def has_rewards(self) -> bool:
        """Somebody kept them; otherwise they are read as 0."""
        return self.facts.get("rewards") != NO_REWARDS["rewards"]

    def episodes(self) -> Iterator[Episode]:
        return self.play()


def environment_name(word: object) -> str:
    """What a file says of its environment, if it can be the name of one; empty otherwise."""
    return word if isinstance(word, str) and ENVIRONMENT.fullmatch(word) else ""


def open_at_once(name: str, flags: int) -> int:
    """An `opener` that never waits: to open a pipe would, and a folder may hold one where a file belongs."""
    return os.open(name, flags | os.O_NONBLOCK)
