"""Values of actions that a row did not take: what conservative penalties weigh against those of the ones it did."""

import math

import torch
from torch import Tensor

from understudy.losses.action_values import expected_value
from understudy.nn.actor import Actor
from understudy.nn.critic import ActionValues, Critic
from understudy.nn.distributions.categorical import forbid
from understudy.nn.distributions.gaussians import ACTION_LIMIT, Deterministic, TanhGaussian, TanhMeanGaussian
from understudy.parts.noise import Noise
from understudy.parts.soft_critic import values_of_many

PROPOSAL_STD = 0.3
"""Of the Gaussian, before tanh, around π's action: any width is right, a fitting one has less variance."""


@torch.no_grad()
def around_policy(policy: Actor, state: Tensor) -> Tensor:
    """Mean and log σ [B, 2A] of a Gaussian, before tanh, around the action that π would take, of whatever distribution.

    Its density on the box is known, which those of a Gaussian that is cut to the box or of a point are not.
    """
    outputs = policy.trunk(state)
    if isinstance(policy.distribution, (TanhMeanGaussian, TanhGaussian, Deterministic)):  # the first are before tanh
        centre = outputs[:, : policy.spec.box.size]
    else:
        centre = policy.distribution.greedy(outputs).clamp(-ACTION_LIMIT, ACTION_LIMIT).atanh()
    return torch.cat([centre, torch.full_like(centre, math.log(PROPOSAL_STD))], dim=1)


def uniform_values(
    critic: Critic, state: Tensor, action: Tensor, mask: Tensor | None, noise: Noise, count: int
) -> Tensor:
    """Q(s, a⁻) [K, N, B] of `count` uniform actions shaped like those taken; of discrete ones the mean of all legal."""
    if isinstance(critic, ActionValues):
        values = critic.every(state)
        evenly = torch.zeros_like(values)
        return expected_value(evenly if mask is None else forbid(evenly, mask), values).unsqueeze(1)
    return values_of_many(critic, state, noise.uniform(count, *action.shape).to(state))


def other_rows_values(
    critic: Critic, state: Tensor, action: Tensor, mask: Tensor | None, noise: Noise, count: int
) -> Tensor:
    """Q(s, a⁻) [K, N, B] of the actions of `count` other rows of the batch each.

    Where such an action is illegal here, the row's own stands in its place, so that a difference from it is 0.
    """
    taken = action[other_rows(noise, count, len(action)).to(action.device)]
    if not isinstance(critic, ActionValues):
        return values_of_many(critic, state, taken)
    if mask is not None:
        taken = torch.where(mask.gather(1, taken.mT).mT, taken, action)
    values = critic.every(state)
    return values.gather(-1, taken.mT.expand(len(values), -1, -1)).mT


def other_rows(noise: Noise, count: int, rows: int) -> Tensor:
    """Indices [N, B] of rows, never a row's own unless it is alone."""
    share = 0.5 + 0.5 * noise.uniform(count, rows)
    offset = 1 + (share * (rows - 1)).long().clamp(max=max(rows - 2, 0))
    return (torch.arange(rows) + offset) % rows
