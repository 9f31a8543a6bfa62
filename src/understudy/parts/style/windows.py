"""Windows of consecutive frames, as a policy made them: none spans two episodes, the last frame is what truly followed.

The window of step t is (s_{t−n+2}, …, s_t, s′_t), where s′ is the final observation at an episode's end and never the
first of the next. The first n − 2 steps of an episode have none. What a rollout needs of the one before is carried.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from understudy.core.batch import Rollout


class PlayedWindows(NamedTuple):
    """What was seen around every step of a rollout."""

    frames: Tensor
    """[T, N, n, F]; anything where it is not whole."""
    whole: Tensor
    """[T, N]: all n frames are of one episode, and the step counts."""


def episode_age(resets: Tensor, before: Tensor) -> Tensor:
    """Steps that an episode had before each step [T, N]; `before` [N] is that of the first unless it is reset."""
    steps = torch.arange(len(resets), device=resets.device).unsqueeze(1)
    last = torch.where(resets, steps, -1).cummax(0).values
    return torch.where(last >= 0, steps - last, steps + before)


@final
@dataclass
class FrameHistory:
    """The last n − 2 frames of each environment, and how many of them are of the episode that goes on."""

    frames: Tensor
    """[n − 2, N, F], oldest first."""
    age: Tensor
    """[N]."""

    @classmethod
    def empty(cls, window: int, count: int, size: int, device: torch.device) -> "FrameHistory":
        return cls(
            torch.zeros(window - 2, count, size, device=device), torch.zeros(count, dtype=torch.int64, device=device)
        )

    def windows(self, rollout: Rollout, seen: Tensor, following: Tensor) -> PlayedWindows:
        """Of frames that were seen [T, N, F] and that followed [T, N, F]."""
        earlier = len(self.frames)
        line = torch.cat([self.frames, seen])
        stretches = line.unfold(0, earlier + 1, 1).permute(0, 1, 3, 2)
        frames = torch.cat([stretches, following.unsqueeze(2)], dim=2)
        return PlayedWindows(frames, rollout.valid & (self._ages(rollout) >= earlier))

    def advance(self, rollout: Rollout, seen: Tensor) -> None:
        """The rollout is over."""
        earlier = len(self.frames)
        ended = rollout.ended[-1] | ~rollout.valid[-1]
        after = (self._ages(rollout)[-1] + 1).clamp(max=earlier).masked_fill(ended, 0)
        self.frames.copy_(torch.cat([self.frames, seen])[len(seen) :])
        self.age.copy_(after)

    def _ages(self, rollout: Rollout) -> Tensor:
        return episode_age(rollout.resets, torch.zeros_like(self.age) if rollout.anew else self.age)
