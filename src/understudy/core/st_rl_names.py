"""What classes, functions and arguments of st_rl are called here: the tables of docs/coming-from-st_rl.md, and what is
suggested where an argument of theirs stands for a setting. The rows are in `st_rl_names.yaml` beside this file."""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import yaml

SETTING = re.compile(r"[a-z_]+(\.(\w+|\*))*")
"""What is neither a call, a command nor a setting of a skill set."""
CALLS = ("us.", "run.", "policy.")
SKILLS = "skills: "
GROUPS = ("algo", "source", "data", "env")
NO_SETTING = "?"
"""A name that none has."""
NOT_NEEDED = "not needed"


class Name(NamedTuple):
    """`Class`, `Class(argument, …)`, `Class.function(argument, …)` or `function(argument, …)`."""

    owner: str
    function: str
    arguments: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Name":
        found = re.fullmatch(r"(?:(\w+)\.)?(\w+)(?:\((.*)\))?", text)
        assert found is not None, text
        return cls(found[1] or "", found[2], tuple(re.findall(r"\w+", found[3] or "")))


class TheirName(NamedTuple):
    file: str
    theirs: str
    ours: tuple[str, ...]
    """Settings; calls (`us.`, `run.`, `policy.`), commands and options (`collect --out`), settings of a skill set
    (`skills: …`)."""
    told: str

    @property
    def names(self) -> list[str]:
        """What it is about, one by one."""
        return re.findall(r"[\w.]+(?:\([^)]*\))?", self.theirs)

    @property
    def settings(self) -> list[str]:
        return [one for one in self.ours if SETTING.fullmatch(one) and not one.startswith(CALLS)]

    @property
    def arguments(self) -> set[str]:
        """Of constructors: what a config had as keys."""
        return {word for name in map(Name.read, self.names) if not name.owner for word in name.arguments}


@cache
def st_rl_names() -> tuple[TheirName, ...]:
    """Every row, file by file."""
    content = yaml.safe_load(files("understudy.core").joinpath("st_rl_names.yaml").read_text(encoding="utf-8"))
    return tuple(
        TheirName(file, theirs, tuple(ours), told) for file, rows in content.items() for theirs, ours, told in rows
    )


def told_of_st_rl(name: str, exists: Callable[[str], bool]) -> str:
    """What to say to somebody who writes an argument of theirs; nothing of what is none, or has no meaning there.

    `exists` believes keys of groups that it does not know: those of groups that it knows come first.
    """
    rows = [row for row in st_rl_names() if name in row.arguments]
    there = [(row, [key for key in row.settings if exists(_known_part(key))]) for row in rows]
    known = [group for group in GROUPS if not exists(f"{group}.{NO_SETTING}")]
    there.sort(key=lambda found: not any(key.partition(".")[0] in known for key in found[1]))
    for row, keys in there:
        if keys:
            return f"Did you mean {' or '.join(map(repr, keys))} (st_rl's {name})?"
        if of_skills := [key.removeprefix(SKILLS) for key in row.ours if key.startswith(SKILLS)]:
            return f"st_rl's {name} is {' or '.join(map(repr, of_skills))} of a skill set: understudy explain skills."
        if not row.ours:
            return f"st_rl's {name} is {row.told}."
    return ""


def _known_part(key: str) -> str:
    """As much of a key as does not hang on a name that somebody chooses: an objective, an encoder, a role."""
    group = key.partition(".")[0]
    if group not in GROUPS:
        return group
    words = key.split(".")
    free = [words.index(word) for word in ("*", "objectives") if word in words]
    return ".".join(words[: free[0] + (words[free[0]] == "objectives")] if free else words)
