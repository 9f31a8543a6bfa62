"""Reference scores: what a random and an expert policy earn, so that returns become comparable.

score = 100·(return − low)/(high − low), never clipped. The table is `scores.yaml` beside this file.
"""

from functools import cache
from importlib.resources import files

import yaml

from understudy.core.errors import DataError, did_you_mean


@cache
def reference_scores() -> dict[str, tuple[float, float]]:
    """Dataset or task id to (low, high)."""
    table = yaml.safe_load(files("understudy.data").joinpath("scores.yaml").read_text(encoding="utf-8"))
    scores: dict[str, tuple[float, float]] = {}
    for entry in table:
        for variant in entry.get("variants", [""]):
            for version in entry["versions"]:
                key = "-".join(part for part in (entry["task"], variant, version) if part)
                scores[key] = (float(entry["low"]), float(entry["high"]))
    return scores


def reference(name: str) -> tuple[float, float]:
    """(low, high) of a known id; an unknown one is told the closest."""
    known = reference_scores()
    if name not in known:
        raise DataError(
            f"reference score '{name}'",
            "not known",
            do=f"{did_you_mean(name, known)} Or give your own: env.reference=[low, high].",
        )
    return known[name]


def normalized_score(name_or_range: str | tuple[float, float], value: float) -> float:
    """Score of a return (or of a mean of returns)."""
    low, high = reference(name_or_range) if isinstance(name_or_range, str) else name_or_range
    return 100.0 * (value - low) / (high - low)


def normalized_spread(name_or_range: str | tuple[float, float], value: float) -> float:
    """Score units of a standard deviation or interval width: scaled, never shifted."""
    low, high = reference(name_or_range) if isinstance(name_or_range, str) else name_or_range
    return 100.0 * value / (high - low)
