"""Which episodes a seed learns from: all as they are, or as many drawn from them with replacement."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.files import sha256_bytes
from understudy.core.rng import stream
from understudy.data.index import EpisodeIndex
from understudy.sources.sampling.draws import uniform_rows


@final
@dataclass(frozen=True, eq=False)
class Resample:
    index: EpisodeIndex
    episodes: Tensor
    """Their numbers [E]; whoever was drawn twice stands there twice."""

    @classmethod
    def whole(cls, index: EpisodeIndex) -> "Resample":
        """Every episode once."""
        return cls(index, torch.arange(len(index.lengths)))

    @classmethod
    def drawn(cls, index: EpisodeIndex, seed: int) -> "Resample":
        """As many as there are, with replacement; which, depends on the seed alone and not on who is judged."""
        count = len(index.lengths)
        return cls(index, uniform_rows(count, count, stream(seed, "ope/episodes")))

    def rows(self) -> Tensor:
        """The steps of each episode, one behind the other [R]: to draw from these evenly is to draw from a dataset of
        these episodes."""
        starts, lengths = (torch.from_numpy(part)[self.episodes] for part in (self.index.starts, self.index.lengths))
        before = lengths.cumsum(0) - lengths
        return torch.repeat_interleave(starts - before, lengths) + torch.arange(int(lengths.sum()))

    @property
    def digest(self) -> str:
        """Of which episodes these are."""
        return sha256_bytes(self.episodes.numpy().tobytes())
