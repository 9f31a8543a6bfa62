"""What was earned: by whole episodes, and from every step to the end of its episode."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.discounting import discounted_sums
from understudy.data.episode import Array
from understudy.data.index import EpisodeIndex

BLOCK_ROWS = 1 << 16


def episode_sums(rewards: Array, index: EpisodeIndex, release: Callable[[], None]) -> NDArray[np.float64]:
    """The undiscounted return of every episode [E]; `release` hands mapped pages back."""
    starts, ends, sums = index.starts, index.ends, np.empty(len(index.lengths))
    first = 0
    while first < len(sums):
        # By rows: what is added in float64 is copied first, and a thousand long episodes would be all of it.
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + BLOCK_ROWS, side="right")))
        rows, part = rewards[starts[first] : ends[last - 1]], slice(first, last)
        sums[part] = np.add.reduceat(rows, starts[part] - starts[first], dtype=np.float64)
        release()
        first = last
    return sums


def returns_to_go(rewards: Callable[[Tensor], Tensor], ends: Tensor, gamma: float) -> Tensor:
    """R_t = r_t + γ·R_{t+1} of every step [steps], without R_{t+1} at the last of an episode; in bounded memory.

    `rewards` gives those of steps by their numbers, `ends` [E] is one past each episode's last. What came after a cut
    is not known and counts as nothing: of an episode that was truncated this is what was seen, not what would come.
    """
    result, beyond = torch.empty(int(ends[-1]), device=ends.device), torch.zeros(1, dtype=torch.float64)
    for last in range(len(result), 0, -BLOCK_ROWS):
        steps = torch.arange(max(0, last - BLOCK_ROWS), last, device=ends.device)
        factors = torch.full((len(steps) + 1,), gamma, dtype=torch.float64, device=ends.device)
        inside = ends[(ends > steps[0]) & (ends <= last)]
        factors[inside - 1 - steps[0]] = 0.0
        sums = discounted_sums(torch.cat([rewards(steps).double(), beyond.to(ends.device)]), factors)
        result[steps[0] : last], beyond = sums[:-1].float(), sums[:1]
    return result
