"""Where episodes lie and how each ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.errors import DataError
from understudy.data.episode import Array, Episode


@dataclass(frozen=True)
class EpisodeIndex:
    """Every array is [E]."""

    lengths: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_known: NDArray[np.bool_]

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "EpisodeIndex":
        return cls(
            np.array([len(episode) for episode in episodes], np.int64),
            np.array([episode.terminated for episode in episodes], bool),
            np.array([episode.truncated for episode in episodes], bool),
            np.array([episode.final_known for episode in episodes], bool),
        )

    def number(self, wanted: int, where: str) -> int:
        """Of an episode; as in a list, those below 0 count from the end."""
        count = len(self.lengths)
        if not -count <= wanted < count:
            raise IndexError(f"{where} has {count} episodes, and no episode {wanted}")
        return int(wanted) % count

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """One past the last step of each episode."""
        return np.cumsum(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first step of each episode."""
        return self.ends - self.lengths

    def of_steps(self) -> Tensor:
        """The episode that each step belongs to [steps], int32."""
        numbers = torch.arange(len(self.lengths), dtype=torch.int32)
        return torch.repeat_interleave(numbers, torch.from_numpy(self.lengths))

    def arrays(self) -> dict[str, Array]:
        return {
            "lengths": self.lengths,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "final_known": self.final_known,
        }


def step_numbers(wanted: object, steps: int, where: str) -> Tensor:
    """Of one step [], or of several [B]; as in a list, those below 0 count from the end."""
    try:
        index = torch.arange(steps)[wanted] if isinstance(wanted, slice) else torch.as_tensor(wanted)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(where, "not the number of a step", got=f"{wanted!r:.60}") from None
    if index.dtype.is_floating_point or index.dtype == torch.bool or index.ndim > 1:
        raise DataError(where, "not the number of a step", got=f"{wanted!r:.60}")
    if bool(((index < -steps) | (index >= steps)).any()):
        raise IndexError(f"{where} has {steps} steps, and no step {wanted!r:.60}")
    return index % steps
