"""Plain PyTorch, as most write it: a module for each network, torch's Adam, rows drawn by index. Its peers share it."""

import itertools
import os
from collections.abc import Callable, Iterator

from _windows import ACTION, BATCH, HIDDEN, OBSERVATION, ROWS, THREADS

os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
from torch import Tensor, nn

GAMMA, POLYAK = 0.99, 0.005
Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def mlp(inputs: int, outputs: int, layers: int) -> nn.Sequential:
    sizes = [inputs, *[HIDDEN] * layers]
    hidden = [part for i, o in itertools.pairwise(sizes) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs))


class Critic(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.network = mlp(OBSERVATION + ACTION, 1, layers)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        value: Tensor = self.network(torch.cat([state, action], 1))
        return value.squeeze(-1)


def batches() -> Callable[[], Rows]:
    """A sampler of (s, a, r, s', terminated) from a million rows of noise."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    data = (
        torch.randn(ROWS, OBSERVATION),
        torch.rand(ROWS, ACTION) * 2 - 1,
        torch.randn(ROWS),
        torch.randn(ROWS, OBSERVATION),
        (torch.rand(ROWS) < 0.001).float(),
    )

    def draw() -> Rows:
        index = torch.randint(ROWS, (BATCH,))
        state, action, reward, next_state, terminated = (column[index] for column in data)
        return state, action, reward, next_state, terminated

    return draw


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@torch.no_grad()
def follow(targets: Iterator[nn.Parameter], networks: Iterator[nn.Parameter]) -> None:
    for target, online in zip(targets, networks, strict=True):
        target.mul_(1 - POLYAK).add_(online, alpha=POLYAK)
