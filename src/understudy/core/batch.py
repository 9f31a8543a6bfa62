"""What flows from a source to an algorithm."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

Obs = dict[str, Tensor]
"""Observations are always named groups, never "a tensor or a dict"."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """A batch of steps; every tensor starts with [B].

    Actions are in policy space ([-1, 1] per dimension), rewards after the run's reward transform,
    observations raw (networks carry their own normaliser). `next_obs` is the true successor, also at a
    time limit; where it is unknown, `extra["td_valid"]` is False.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    next_obs: Obs
    terminated: Tensor
    extra: Mapping[str, Tensor]
    """Only the columns that the algorithm's `Demand` named."""
