"""Tracking a reference motion (DeepMimic; Peng et al. 2018), in words and in formulas.

An environment is rewarded for being, at every step, where a clip is at the same moment:

    reward = Σᵢ wᵢ·exp(−kᵢ·dᵢ²) + task_weight·(the environment's own)                    (tracking_terms)
    dᵢ²    = ‖segmentᵢ − referenceᵢ‖²                                                     (squared_distances)
             or, of quaternions, the sum of squares of the angles between them            (squared_angles)

Wherever some dᵢ exceeds its `max_error`, the episode has failed and terminates. Where a clip ends that is not looped,
the episode is cut short: truncated, not terminated, for it could have gone on.
"""

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from understudy.core.settings import Settings

Floats = NDArray[np.float64]
Ahead = Annotated[int, Field(ge=0, le=1000)]


class TrackedSegment(Settings):
    """One thing that shall be where the reference has it."""

    channel: str = ""
    """The motions' channel that it is compared with; empty: the one of its own name."""
    components: tuple[str, ...] = ()
    """Which components of the channel, by name or pattern: [right_hand.*, left_hand.*]; empty: all."""
    weight: float = Field(1.0, ge=0)
    """Of its reward, which is at most this; 0: it only counts for `max_error` and is measured."""
    scale: float = Field(1.0, gt=0)
    """k in exp(−k·d²): an error of 1/√k pays 37 %."""
    max_error: float | None = Field(None, gt=0)
    """The distance d beyond which an episode terminates; absent: none."""
    distance: Literal["euclidean", "quaternion"] = "euclidean"
    """Between numbers, or between rotations that are quaternions, as angles in rad."""


class TrackingSettings(Settings):
    """A motion that shall be followed: what counts, where episodes begin and what the policy is told."""

    segments: dict[str, TrackedSegment] = Field(min_length=1)
    """By what the environment calls it, a group or `group.segment`: {state.joint_angles: {channel: joint_positions,
    weight: 0.65, scale: 2}}."""
    task_weight: float = 0.0
    """What the environment's own reward is multiplied by."""
    reference_start: float = Field(1.0, ge=0, le=1)
    """The chance that an episode begins in a state of the motion, at any moment of it; the others begin as the
    environment does, at the beginning of a clip."""
    phase: bool = True
    """Show the policy, as the group `phase`, sine and cosine of how far the clip is: once around for a looped one, half
    around for one that ends."""
    preview: tuple[Ahead, ...] = ()
    """Show the policy, as the group `reference`, what is tracked so many steps ahead: [1]. Where there are several
    clips, a phase alone does not say what is due."""

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if not any(segment.weight for segment in self.segments.values()):
            raise ValueError("every weight in segments is 0: nothing is tracked")
        if len(self.labels) < len(self.segments):
            raise ValueError("two segments have the same last name: reward terms could not be told apart")
        return self

    @property
    def labels(self) -> dict[str, str]:
        """What each segment is called in logs, and its name: `joint_angles` of `state.joint_angles`."""
        return {name.rpartition(".")[2]: name for name in self.segments}


def squared_distances(seen: Floats, reference: Floats, starts: NDArray[np.intp]) -> Floats:
    """dᵢ² [S] of numbers [K], of which segments begin at `starts` [S]."""
    error = seen - reference
    summed: Floats = np.add.reduceat(error * error, starts)
    return summed


def squared_angles(seen: Floats, reference: Floats) -> float:
    """The sum of squares of the angles between quaternions [4·n], of whatever sign and norm."""
    one, other = seen.reshape(-1, 4), reference.reshape(-1, 4)
    cosine = np.abs(np.einsum("ij,ij->i", one, other))
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    angles = 2 * np.arccos(np.minimum(cosine / norms, 1.0))
    return float(angles @ angles)


def tracking_terms(squares: Floats, weights: Floats, scales: Floats) -> Floats:
    """wᵢ·exp(−kᵢ·dᵢ²) [S]"""
    terms: Floats = weights * np.exp(-scales * squares)
    return terms


def clip_phase(time: float, duration: float, looped: bool) -> tuple[float, float]:
    """Sine and cosine of how far a clip is: of a whole turn for a looped one, of half a one for one that ends."""
    angle = (2 * math.pi if looped else math.pi) * time / duration
    return math.sin(angle), math.cos(angle)
