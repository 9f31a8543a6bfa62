"""A ranking of candidates by what is left of their value if one is cautious, and what it does not tell."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from understudy.core.wording import counted
from understudy.tools.experiments.statistics import Estimate
from understudy.tools.ope.intervals import Interval, above, around

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Judgement:
    """What is known of one candidate."""

    name: str
    estimate: Estimate
    """Its value, discounted, in units of the recorded rewards, with a 95 % interval."""
    draws: Array
    """Estimates from resampled episodes [D], the same for all: of the bootstrap, or of FQE one of every seed."""
    facts: Mapping[str, float]
    """`far`: share of its actions that are far from the data. `effective`: episodes that count, of importance weights.
    `seeds_std`: how far seeds are apart. `gamma`, `td_error`: of critics of its own."""
    diverged: bool = False
    """Its critics believe in more than any return can be."""
    doubts: Sequence[str] = ()
    """Why its number is not to be believed."""
    interval: Interval = around
    """How an interval is made of draws; the same for all."""


@final
@dataclass(frozen=True)
class Ranking:
    """Candidates, the best lower bound first."""

    method: str
    gamma: float
    data: str
    judged: Sequence[Judgement]
    behaviour: Estimate
    """The discounted return of the data's own episodes."""
    behaviour_return: Estimate
    """Undiscounted."""
    warnings: Sequence[str]

    @property
    def best(self) -> Judgement:
        return self.judged[0]

    @property
    def rivals(self) -> list[Judgement]:
        """Those that the best is not above of with 95 % confidence; who diverged is none."""
        others = (one for one in self.judged[1:] if not one.diverged)
        return [one for one in others if not above(self.best.draws, one.draws, one.interval)]

    def values(self) -> dict[str, float]:
        """Estimates by name."""
        return {one.name: one.estimate.value for one in self.judged}

    def verdict(self) -> str:
        """A sentence, and why not to believe it."""
        best, estimate = self.best, self.best.estimate
        if best.diverged or math.isnan(estimate.value):
            reason = "the critics diverged" if best.diverged else "no episode of the data has any weight"
            return f"Nothing is known of {best.name if len(self.judged) == 1 else 'any candidate'}: {reason}."
        limits = f"{number(estimate.low)} to {number(estimate.high)}"
        limits = "no interval" if math.isnan(estimate.low) and math.isnan(estimate.high) else limits
        others = ", ".join(one.name for one in self.rivals)
        if len(self.judged) == 1:
            told = f"{best.name} is worth {number(estimate.value)} ({limits})"
        elif others:
            highest = "value (of nobody a lower bound is known)" if math.isnan(estimate.low) else "lower bound"
            told = f"{best.name} has the highest {highest}, but cannot be told apart from {others}"
        elif self.method == "fqe":
            told = f"{best.name} is best; 95 % intervals of its lead over each of the others are above 0"
        else:
            told = f"{best.name} is best; in 95 of 100 resamplings of episodes or more it is above each of the others"
        return f"{told}." + (f" This is not to be relied on: {', '.join(best.doubts)}." if best.doubts else "")

    def to_json(self) -> dict[str, Any]:
        rivals = {id(one) for one in self.rivals}
        return {
            "method": self.method,
            "gamma": self.gamma,
            "data": self.data,
            "behaviour": _interval(self.behaviour),
            "behaviour_return": _interval(self.behaviour_return),
            "candidates": [
                {
                    "name": one.name,
                    **_interval(one.estimate),
                    **{name: _known(fact) for name, fact in one.facts.items()},
                    "diverged": one.diverged,
                    "doubts": list(one.doubts),
                    "tied_with_best": id(one) in rivals,
                }
                for one in self.judged
            ],
            "verdict": self.verdict(),
            "warnings": list(self.warnings),
        }

    def lines(self) -> Iterator[str]:
        """A table for people."""
        facts = [name for name in ("far", "effective", "seeds_std") if any(name in one.facts for one in self.judged)]
        heads = ["candidate", "value", "lower", "upper", *(HEADS[name] for name in facts), ""]
        rows = [heads]
        tied = {id(one) for one in self.rivals}
        for one in self.judged:
            estimate = one.estimate
            cells = [one.name, *map(number, (estimate.value, estimate.low, estimate.high))]
            cells += [_told(name, one.facts) for name in facts]
            rows.append([*cells, " ".join(["diverged"] * one.diverged + ["cannot be told apart"] * (id(one) in tied))])
        behaviour = self.behaviour
        numbers = map(number, (behaviour.value, behaviour.low, behaviour.high))
        rows.append(["the data's own episodes", *numbers, *[""] * len(facts), ""])
        widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
        for row in rows:
            first, *rest = zip(row, widths, strict=True)
            cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest[:-1]), row[-1]]
            yield "  ".join(cells).rstrip()
        own = self.behaviour_return
        yield f"undiscounted, the data's episodes earn {own.value:.4g} ({own.low:.4g} to {own.high:.4g})"


HEADS = {"far": "far from data", "effective": "effective episodes", "seeds_std": "seeds' std"}


def _told(name: str, facts: Mapping[str, float]) -> str:
    if name not in facts:
        return ""
    return f"{facts[name]:.0%}" if name == "far" else number(facts[name])


def number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.4g}"


def _interval(estimate: Estimate) -> dict[str, float | None]:
    return {"value": _known(estimate.value), "low": _known(estimate.low), "high": _known(estimate.high)}


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def ranked(judged: Sequence[Judgement]) -> list[Judgement]:
    """By lower bound; after them those of whom none is known, by value, and those that diverged last."""

    def place(one: Judgement) -> tuple[float, ...]:
        known = (one.estimate.low, one.estimate.value)
        return (one.diverged, *(rank for value in known for rank in (math.isnan(value), -np.nan_to_num(value))))

    return sorted(judged, key=place)


def judgement(
    name: str,
    values: Sequence[float],
    draws: Array,
    facts: Mapping[str, float],
    diverged: bool,
    doubts: Sequence[str] = (),
    interval: Interval = around,
) -> Judgement:
    """Of the estimates of each seed, and what resampled episodes say."""
    with np.errstate(invalid="ignore"):  # of critics that diverged
        spread = {"seeds_std": float(np.std(values, ddof=1))} if len(values) > 1 else {}
        estimate = interval(float(np.mean(values)), draws)
    return Judgement(name, estimate, draws, {**facts, **spread}, diverged, doubts, interval)


def about_cuts(cut: int, episodes: int) -> str:
    """Returns of episodes that were cut are shorter than values are."""
    told = f"{cut} of {counted(episodes, 'episode')}"
    return f"{told} of the data were cut: what came after is in no return, and in every value that a critic expects."
