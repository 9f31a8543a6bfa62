"""V(s) of what the critic sees: perception → trunk → one number. It may see more than the actor, or share its eyes."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Carry
from understudy.core.spec import Spec
from understudy.nn.critic import CriticSettings
from understudy.nn.mlp import MLP
from understudy.nn.perception import Perception


class Valued(NamedTuple):
    """Values along a rollout, [T, N] each."""

    value: Tensor
    next_value: Tensor
    """V(next_obs), with the memory of the episode it belongs to; whether it counts is not decided here."""


class ValueNetwork(nn.Module):
    """Values [T, N] or [B] in units of reward. A perception that it `shares` is looked after by its owner."""

    def __init__(
        self,
        spec: Spec,
        settings: CriticSettings,
        rng: torch.Generator,
        *,
        perception: Perception | None = None,
        shares: bool = False,
        where: str = "critic",
    ) -> None:
        super().__init__()
        self.settings = settings
        self.shares = shares
        self.perception = perception or Perception(spec, settings, rng, where)
        self.trunk = MLP(self.perception.size, 1, settings, rng)

    def initial(self, count: int) -> Carry:
        return self.perception.initial(count)

    def forward(self, seen: Tensor) -> Tensor:
        """V(s) [...] from what `perception` gave [..., size]."""
        values: Tensor = self.trunk(seen)
        return values.squeeze(-1)

    def evaluate(self, obs: Obs, carry: Carry = (), resets: Tensor | None = None) -> Tensor:
        """V(s) [T, N], or of any rows [...] where there is no memory."""
        values: Tensor = self(self.perception.sequence(obs, carry, resets))
        return values

    def around(self, obs: Obs, next_obs: Mapping[str, Tensor], carry: Carry, resets: Tensor) -> Valued:
        """V(s) and V(s′) of a rollout in one pass; only where an episode was left is s′ looked at of its own."""
        seen, successors = self.perception.around(obs, next_obs, carry, resets)
        values = self(seen)
        return Valued(values[: resets.numel()].view(resets.shape), values[successors].view(resets.shape))

    @torch.no_grad()
    def after(self, obs: Obs, carry: Carry, resets: Tensor) -> Carry:
        """What the critic remembers after [T, N] steps, for the next rollout."""
        return self.perception.after(obs, carry, resets)

    def observe(self, obs: Obs, valid: Tensor | None = None) -> None:
        """Take observations into the statistics of its own normalisers; shared ones are their owner's."""
        if not self.shares:
            self.perception.observe(obs, valid)


def check_alike(settings: CriticSettings, actor: Perception, where: str) -> None:
    """Shared eyes see one thing."""
    names = ("sees", "hide", "normalize", "normalizer", "encoders", "memory")
    mine, theirs = (dict(one) for one in (settings, actor.settings))
    different = [name for name in names if mine[name] != theirs[name]]
    if different:
        raise ConfigError(
            f"{where}.{different[0]}",
            "differs from the actor's, with which everything is shared",
            got=mine[different[0]],
            expected=theirs[different[0]],
            do="Say the same in both, or share only the encoders.",
        )
