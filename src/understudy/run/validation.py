"""Episodes held out of training: how far the policy's greedy actions are from the recorded ones there."""

import torch

from understudy.core.protocols import Demand
from understudy.data.dataset import Dataset
from understudy.nn.actor import Actor

BLOCK = 4096


@torch.no_grad()
def validation_error(policy: Actor, dataset: Dataset) -> float:
    """Mean squared difference over all steps and dimensions, in policy units ([-1, 1] per dimension)."""
    total = torch.zeros((), dtype=torch.float64)
    for first in range(0, dataset.steps, BLOCK):
        index = torch.arange(first, min(first + BLOCK, dataset.steps))
        rows = dataset.rows(index, Demand())
        action, _ = policy.act(rows.obs, policy.initial(len(index)), greedy=True)
        difference = (action.cpu() - rows.action) / policy.action_half_range.cpu()
        total += difference.double().square().sum()
    return float(total) / dataset.actions.numel()
