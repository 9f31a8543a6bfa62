"""Pieces of SAC (Haarnoja et al. 2018): policies with a density, and critics asked about many actions of each state."""

from typing import Literal

import torch
from torch import Tensor

from understudy.nn.actor import ActorSettings
from understudy.nn.critic import QEnsemble
from understudy.nn.distributions import DistributionSettings
from understudy.nn.init import Init


class TanhGaussianSettings(DistributionSettings):
    """a = tanh(u), u ~ N(μ(s), σ(s)²); there is no other here."""

    kind: Literal["tanh_gaussian"] = "tanh_gaussian"
    """`tanh_gaussian`: this algorithm climbs its critics with actions drawn inside the box."""


class TanhGaussianActorSettings(ActorSettings):
    """What a policy that is tanh of a Gaussian sees, and its shape."""

    distribution: TanhGaussianSettings = TanhGaussianSettings()
    """`tanh_gaussian`, or a group with its limits."""
    init: Init = "default"
    """`default` (torch's Linear), `orthogonal`, `small_output` or `xavier_output`."""


BLOCK_ROWS = 512
"""Rows of a pass: activations that fit the cache, in few passes."""


def values_of_many(critic: QEnsemble, state: Tensor, actions: Tensor) -> Tensor:
    """Q_j(s_b, a_mb) [K, M, B] of states [B, S] and M actions for each [M, B, A], all critics at once.

    A pass takes as many actions as keep its activations in the cache: thirty actions of 256 states take, compiled, a
    sixth less time in fifteen passes than in one.
    """
    count = max(1, BLOCK_ROWS // len(state))
    blocks = [_values(critic, state, block) for block in torch.split(actions, count)]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)


def _values(critic: QEnsemble, state: Tensor, actions: Tensor) -> Tensor:
    count, rows, _ = actions.shape
    states = state.expand(count, *state.shape)
    values: Tensor = critic(states.flatten(0, 1), actions.flatten(0, 1))
    return values.view(-1, count, rows)
