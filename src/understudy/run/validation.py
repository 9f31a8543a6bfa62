"""Episodes held out of training: how far the policy's greedy actions are from the recorded ones there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch

from understudy.core.protocols import Algorithm, Demand, Metrics
from understudy.core.spec import ACTION_MASK
from understudy.data.dataset import Dataset
from understudy.nn.committee import Memoryless

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
        assert isinstance(policy, Memoryless)
        return {"eval/validation_error": validation_error(policy, self.dataset)}

    def warning(self, values: Mapping[str, float]) -> str:
        return ""


@torch.no_grad()
def validation_error(policy: Memoryless, dataset: Dataset) -> float:
    """Mean squared difference over steps and dimensions, in policy units; of choices, the share that differ."""
    total = torch.zeros((), dtype=torch.float64)
    demand = Demand(("mask",) if policy.spec.masked else ())
    for first in range(0, dataset.steps, BLOCK):
        index = torch.arange(first, min(first + BLOCK, dataset.steps))
        rows = dataset.rows(index, demand)
        obs = {**rows.obs, ACTION_MASK: rows.extra["mask"]} if policy.spec.masked else rows.obs
        action, _ = policy.act(obs, policy.initial(len(index)), greedy=True)
        if policy.discrete:
            total += (action.cpu() != rows.action).sum()
        else:
            difference = (action.cpu() - rows.action) / policy.action_half_range.cpu()
            total += difference.double().square().sum()
    return float(total) / dataset.actions.numel()
