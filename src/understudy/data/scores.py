"""Reference scores: what a random and an expert policy earn, so that returns become comparable.

score = 100·(return − low)/(high − low), never clipped. The table is `scores.yaml` beside this file; it says where each
number comes from, and which ids look as if they had one and do not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from understudy.core.arguments import as_number
from understudy.core.errors import DataError, did_you_mean

DATASETS = ("d4rl", "d4rl_pybullet", "minari")
OWN = "give your own: env.reference=[low, high]."


@dataclass(frozen=True)
class Reference:
    """Returns of random and expert play, and the step at which episodes were cut (0: not known)."""

    low: float
    high: float
    cap: int = 0


@cache
def _table() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(
        files("understudy.data").joinpath("scores.yaml").read_text(encoding="utf-8")
    )
    return content


def _entries(*sections: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every id of some sections, with its row."""
    for section in sections:
        for row in _table()[section]:
            for variant in row.get("variants", [""]):
                for version in row["versions"]:
                    yield "-".join(part for part in (row["task"], variant, version) if part), row


@cache
def _references() -> dict[str, Reference]:
    """Dataset and environment ids; a row with `like` borrows the numbers of an id above it."""
    known: dict[str, Reference] = {}
    for name, row in _entries(*DATASETS, "environments"):
        numbers = known[row["like"]] if "like" in row else None
        known[name] = numbers or Reference(float(row["low"]), float(row["high"]), int(row.get("cap", 0)))
    return known


@cache
def reference_scores() -> dict[str, tuple[float, float]]:
    """Dataset id to (low, high)."""
    known = _references()
    return {name: (known[name].low, known[name].high) for name, _ in _entries(*DATASETS)}


@cache
def environment_scores() -> dict[str, tuple[float, float]]:
    """Id of an environment whose returns lie on a dataset's scale, to (low, high)."""
    known = _references()
    return {name: (known[name].low, known[name].high) for name, _ in _entries("environments")}


def reference(name: str) -> tuple[float, float]:
    """(low, high) of a known id; an unknown one is told the closest, a misleading one why it has none."""
    found = _find(name)
    return found.low, found.high


def episode_cap(name: str) -> int | None:
    """Steps after which episodes of a known id were cut, where that is known."""
    return _find(name).cap or None


def normalized_score(name_or_range: str | tuple[float, float], value: float) -> float:
    """Score of a return (or of a mean of returns): 0 is random play, 100 the expert, and neither is a limit.

    The first argument is a dataset id (`hopper-medium-v2`), an environment id where the scale is the same
    (`HalfCheetahBulletEnv-v0`), or one's own (low, high).
    """
    low, high = _range(name_or_range)
    value = as_number(value, "normalized_score")
    return 100.0 * ((value - low) / (high - low))


def normalized_spread(name_or_range: str | tuple[float, float], value: float) -> float:
    """Score units of a standard deviation or interval width: scaled, never shifted."""
    low, high = _range(name_or_range)
    return 100.0 * (value / (high - low))


def _range(name_or_range: str | tuple[float, float]) -> tuple[float, float]:
    if isinstance(name_or_range, str):
        return reference(name_or_range)
    if not isinstance(name_or_range, (tuple, list)) or len(name_or_range) != 2:
        raise DataError("reference score", "neither an id nor a range", got=name_or_range, expected="(low, high)")
    low, high = (as_number(bound, "reference score") for bound in name_or_range)
    if not low < high:
        raise DataError("reference score", "not a range", got=f"[{low}, {high}]", expected="low below high")
    return low, high


def _find(name: str) -> Reference:
    known = _references()
    if name in known:
        return known[name]
    where = f"reference score '{name}'"
    for row in _table()["refused"]:
        if fnmatchcase(name, row["ids"]):
            what = f"D4RL's numbers do not fit, because {row['because']}"
            own = "Its own metadata may hold one (ref_min_score, ref_max_score): " if "metadata" in row else ""
            raise DataError(where, what, do=own + (OWN if own else OWN.capitalize()))
    raise DataError(where, "not known", do=f"{_closest(name)} Or {OWN}")


def _closest(name: str) -> str:
    """Three hundred ids are no answer: the closest one, or their families."""
    hint = did_you_mean(name, _references())
    if not hint.startswith("Known"):
        return hint
    tasks = (row["task"] for section in (*DATASETS, "environments") for row in _table()[section])
    families = dict.fromkeys(re.split("[-/]", task)[0] for task in tasks)
    return f"Known are datasets and environments of {', '.join(families)} (see: understudy list datasets)."
