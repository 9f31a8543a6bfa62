"""Dropout that draws from a stream of its own, so that a resumed run drops the same units."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from understudy.core.rng import stream


class Dropout(nn.Module):
    """Zeroes a share of the units while training and scales the rest up."""

    def __init__(self, share: float, rng: torch.Generator) -> None:
        super().__init__()
        self.share = share
        self.stream = stream(int(torch.randint(2**31, (1,), generator=rng, device="cpu")), "dropout")

    def forward(self, units: Tensor) -> Tensor:
        if not self.training or self.share == 0.0:
            return units
        keep = torch.empty(units.shape).bernoulli_(1.0 - self.share, generator=self.stream).to(units.device)
        return units * keep / (1.0 - self.share)


class Trainable(Protocol):
    """A module, or what stands for one."""

    training: bool

    def train(self, mode: bool = True) -> object: ...


@contextmanager
def eval_mode(network: Trainable) -> Iterator[None]:
    """Nothing is dropped inside: the streams belong to training."""
    training = network.training
    network.train(False)
    try:
        yield
    finally:
        network.train(training)
