"""An inspection: the survey of a recording, what it means, and how good its episodes are on a known scale."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DataError
from understudy.core.spec import ActionSpace
from understudy.data.recording import Recording
from understudy.data.scores import environment_scores, normalized_score, reference, reference_scores
from understudy.tools.dataset.findings import Finding, findings
from understudy.tools.dataset.survey import Survey, survey

Range = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """Normalised scores of the recorded returns: 0 is random play, 100 the expert."""

    name: str
    """Whose scale it is."""
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Inspection:
    """Everything `understudy dataset inspect` shows."""

    survey: Survey
    findings: list[Finding]
    score: Score | None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.survey.to_json(),
            "score": None if self.score is None else vars(self.score),
            "findings": [finding.to_json() for finding in self.findings],
        }


def inspect_recording(
    recording: Recording, space: ActionSpace | None = None, reference: str | Range | None = None
) -> Inspection:
    """One pass over a recording. `space` is its environment's; `reference` an id with known scores, or (low, high)."""
    scale = find_scale(recording, reference)
    facts = survey(recording, space)
    return Inspection(facts, findings(facts), _score(facts, scale))


def find_scale(recording: Recording, wanted: str | Range | None) -> tuple[str, Range] | None:
    """What was asked for (unknown ids are refused), what the file says, or what its name or world is known for."""
    if isinstance(wanted, str):
        return wanted, reference(wanted)
    if wanted is not None:
        normalized_score(wanted, 0.0)
        return "the given range", wanted
    own = recording.facts.get("ref_min_score"), recording.facts.get("ref_max_score")
    if isinstance(own[0], float) and isinstance(own[1], float) and own[0] < own[1]:
        return "its own metadata", (own[0], own[1])
    known = reference_scores()
    stem = re.sub("_", "-", Path(recording.name).stem)
    for name in (recording.name, stem):
        if name in known:
            return name, known[name]
    if recording.env in environment_scores():
        return recording.env, environment_scores()[recording.env]
    return None


def _score(facts: Survey, scale: tuple[str, Range] | None) -> Score | None:
    returns = facts.returns[np.isfinite(facts.returns)]
    if scale is None or not len(returns) or facts.facts.get("rewards") == "absent":
        return None
    name, bounds = scale
    mean, low, high = (
        normalized_score(bounds, float(value)) for value in (returns.mean(), returns.min(), returns.max())
    )
    return Score(name, mean, low, high)


def read_range(text: str) -> str | Range:
    """`hopper-medium-v2`, or `LOW,HIGH` as one writes a range on the command line."""
    parts = text.strip("[]() ").split(",")
    if len(parts) != 2:
        return text
    try:
        return float(parts[0]), float(parts[1])
    except ValueError as error:
        raise DataError("--reference", "not a range", got=text, expected="an id, or LOW,HIGH") from error
