"""Episodes held out of training: how far the policy's greedy actions are from the recorded ones there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.protocols import Algorithm, Carry, Demand, Metrics
from understudy.core.spec import ACTION_MASK
from understudy.data.dataset import Dataset
from understudy.nn.deployed import Deployed
from understudy.run.config import ACTION_ERROR

BLOCK = 4096


@final
@dataclass(frozen=True)
class Validation:
    """A probe that measures it at every evaluation."""

    dataset: Dataset

    def metrics(self, algorithm: Algorithm[Any]) -> Metrics:
        return {}

    def eval_metrics(self, algorithm: Algorithm[Any]) -> dict[str, float]:
        policy = algorithm.policy
        assert isinstance(policy, Deployed)
        return {ACTION_ERROR: action_error(policy, self.dataset)}

    def warning(self, values: Mapping[str, float]) -> str:
        return ""


@torch.no_grad()
def action_error(policy: Deployed, dataset: Dataset) -> float:
    """Mean squared difference over steps and dimensions, in policy units; of choices, the share that differ."""
    total = torch.zeros((), dtype=torch.float64)
    carry: Carry = ()
    for index, alive in _steps(dataset) if policy.initial(1) else _blocks(dataset):
        rows = dataset.rows(index, Demand(("mask",) if policy.spec.masked else ()))
        obs = {**rows.obs, ACTION_MASK: rows.extra["mask"]} if policy.spec.masked else rows.obs
        carry = tuple(part[alive] for part in carry) if carry else policy.initial(len(index))
        action, carry = policy.act(obs, carry, greedy=True)
        if policy.discrete:
            total += (action.cpu() != rows.action).sum()
        else:
            difference = (action.cpu() - rows.action) / policy.action_half_range.cpu()
            total += difference.double().square().sum()
    return float(total) / dataset.actions.numel()


def _blocks(dataset: Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    """All rows, some at a time; nobody remembers anything."""
    for first in range(0, dataset.steps, BLOCK):
        yield torch.arange(first, min(first + BLOCK, dataset.steps)), torch.empty(0, dtype=torch.int64)


def _steps(dataset: Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows of step 0, 1, … of all episodes that still last, and which of those of the step before they are."""
    starts, lengths = (torch.from_numpy(part) for part in (dataset.index.starts, dataset.index.lengths))
    alive = torch.arange(len(starts))
    for step in range(int(lengths.max())):
        lasting = lengths[alive] > step
        alive = alive[lasting]
        yield starts[alive] + step, lasting.nonzero()[:, 0]
