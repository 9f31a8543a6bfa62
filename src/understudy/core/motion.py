"""Reference motions, as whoever imitates them knows them: clips of frames, a control step apart, in named channels."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class MotionWindows(Protocol):
    """Stretches of `frames` consecutive frames, none of which leaves its clip."""

    @property
    def count(self) -> int:
        """How many different ones there are."""

    @property
    def size(self) -> int:
        """F: numbers in a frame."""

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """[count, frames, F], each drawn by itself: a clip with the chance weight·windows, then any of its windows."""


class Motions(Protocol):
    """Clips, resampled to the control step. A channel (`joint_positions`) has a number for each of its components."""

    @property
    def step(self) -> float:
        """Seconds between frames; nan where nobody said, as of recorded datasets."""

    @property
    def channels(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the components of every channel."""

    @property
    def clips(self) -> tuple[str, ...]: ...

    @property
    def durations(self) -> Tensor:
        """Of each clip [C], in frames: n of a looped one of n frames, whose first follows its last; n − 1 of others."""

    @property
    def looped(self) -> Tensor:
        """Which clips begin again after their last frame [C]."""

    @property
    def fingerprint(self) -> str:
        """sha256 of all that can be drawn."""

    def windows(self, channels: Sequence[str], frames: int) -> MotionWindows:
        """Of these channels side by side, in this order. A channel that is missing and clips that are too short are
        told by name."""

    def draw_moments(self, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Clips [N] and times in them [N], in frames, uniformly over all there is: where episodes may start."""

    def at(self, channels: Sequence[str], clip: Tensor, time: Tensor) -> dict[str, Tensor]:
        """Each channel [N, K] of clips [N] at times [N] in frames, between frames interpolated (rotations by slerp). A
        looped clip goes on from its beginning, root positions from where they were; others stay at their last frame."""

    def describe(self) -> dict[str, Any]:
        """For meta.json."""
