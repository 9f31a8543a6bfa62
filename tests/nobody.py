"""A policy that is never asked."""

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import Carry


class Nobody:
    def initial(self, count: int) -> Carry:
        raise AssertionError("an offline source asks no policy")

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        raise AssertionError("an offline source asks no policy")
