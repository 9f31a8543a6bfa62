"""What Minari publishes, as a list one can read without a network: id, size, and where it was recorded."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Published:
    """A dataset on Minari's server."""

    id: str
    steps: int
    episodes: int
    env: str
    """The environment it was recorded in, or nothing where none is registered."""


@dataclass(frozen=True)
class Family:
    """Many datasets under one pattern of names."""

    ids: str
    count: int


@cache
def minari_datasets() -> dict[str, Published]:
    """Id to entry, in Minari's order."""
    return {row["id"]: Published(**row) for row in _table()["datasets"]}


@cache
def minari_families() -> tuple[Family, ...]:
    """What else is there, too much to list one by one."""
    return tuple(Family(**row) for row in _table()["families"])


def _table() -> dict[str, list[dict[str, Any]]]:
    text = files("understudy.data").joinpath("minari.yaml").read_text(encoding="utf-8")
    content: dict[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return content
