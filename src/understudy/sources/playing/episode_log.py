"""Returns and lengths of finished episodes, of fixed size so that a checkpoint can hold it."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.protocols import Metrics

ROOM, RECENT = 1024, 100
"""Episodes that are kept, and those of a running mean."""


@final
@dataclass
class EpisodeLog:
    """Sums of N running episodes, and a ring of the last finished ones; on the CPU, in double precision."""

    running_return: Tensor
    running_length: Tensor
    returns: Tensor
    lengths: Tensor
    total: int = 0
    """Episodes finished so far."""
    asked: int = 0
    """How many of them were already told."""

    @classmethod
    def empty(cls, count: int) -> "EpisodeLog":
        room = max(ROOM, 4 * count)
        floats, whole = torch.float64, torch.int64
        running = torch.zeros(count, dtype=floats), torch.zeros(count, dtype=whole)
        return cls(*running, torch.zeros(room, dtype=floats), torch.zeros(room, dtype=whole))

    def add(self, reward: Tensor, valid: Tensor, ended: Tensor) -> None:
        """T steps of N environments: rewards, whether anything happened, and whether an episode ended [T, N]."""
        reward, valid, ended = (part.cpu() for part in (reward, valid, ended))
        begin = 0
        for end in [*ended.any(1).nonzero()[:, 0].numpy(), len(ended) - 1]:
            self.running_return += reward[begin : end + 1].sum(0, dtype=torch.float64)
            self.running_length += valid[begin : end + 1].sum(0)
            if begin <= end:
                self._finish(ended[end])
            begin = end + 1

    def add_step(self, reward: Tensor, valid: Tensor, ended: Tensor) -> None:
        """One step of N environments [N]."""
        self.running_return += reward
        self.running_length += valid
        if bool(ended.any()):
            self._finish(ended)

    def metrics(self) -> Metrics:
        """Episodes that ended since this was last asked, and those of the last hundred."""
        returns, lengths = self.ask()
        told = {"rollout/episodes": torch.tensor(len(returns))}
        if len(returns):
            told |= {"rollout/return_mean": returns.mean(), "rollout/length_mean": lengths.double().mean()}
        returns, lengths = self.recent()
        if len(returns):
            told |= {"rollout/return_last_100": returns.mean(), "rollout/length_last_100": lengths.double().mean()}
        return told

    def _finish(self, ended: Tensor) -> None:
        finished = self.running_return[ended]
        places = (self.total + torch.arange(len(finished))) % len(self.returns)
        self.returns[places] = finished
        self.lengths[places] = self.running_length[ended]
        self.total += len(finished)
        self.running_return.masked_fill_(ended, 0.0)
        self.running_length.masked_fill_(ended, 0)

    def ask(self) -> tuple[Tensor, Tensor]:
        """Returns and lengths of the episodes since the last time, the oldest first; of very many only the newest."""
        first = max(self.asked, self.total - len(self.returns))
        places = torch.arange(first, self.total) % len(self.returns)
        self.asked = self.total
        return self.returns[places], self.lengths[places]

    def recent(self) -> tuple[Tensor, Tensor]:
        """Returns and lengths of the last hundred episodes, or of as many as there were."""
        places = torch.arange(max(0, self.total - RECENT), self.total) % len(self.returns)
        return self.returns[places], self.lengths[places]

    def forget_unfinished(self) -> None:
        """The running episodes will never be finished."""
        self.running_return.zero_()
        self.running_length.zero_()
