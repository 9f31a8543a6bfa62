"""Pieces of SAC (Haarnoja et al. 2018): policies with a density, and critics asked about many actions of each state."""

from typing import Literal

from torch import Tensor

from understudy.nn.actor import ActorSettings
from understudy.nn.critic import QEnsemble
from understudy.nn.init import Init


class SquashedActorSettings(ActorSettings):
    """The shape of a policy that is tanh of a Gaussian."""

    head: Literal["squashed"] = "squashed"
    """a = tanh(u), u ~ N(μ(s), σ(s)²); there is no other here."""
    init: Init = "default"
    """`default` (torch's Linear), `orthogonal` or `small_output`."""


def values_of_many(critic: QEnsemble, state: Tensor, actions: Tensor) -> Tensor:
    """Q_j(s_b, a_mb) [K, M, B] of states [B, S] and M actions for each [M, B, A], in one pass of the ensemble."""
    count, rows, _ = actions.shape
    states = state.expand(count, *state.shape)
    values: Tensor = critic(states.flatten(0, 1), actions.flatten(0, 1))
    return values.view(-1, count, rows)
