"""V(s) of what the critic sees: perception → trunk → one number. It may see more than the actor, or share its eyes."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Carry
from understudy.core.spec import Spec
from understudy.nn.activated_mlp import VALUE_GAIN, ActivatedMLP
from understudy.nn.perception import Perception, RoleSettings

Share = Literal["nothing", "encoders", "everything"]


class ValueSettings(RoleSettings):
    """What a critic sees, and its shape."""

    share: Share = "nothing"
    """`nothing`; the actor's `encoders` of inputs that both see and encode alike; or `everything` below the trunk,
    memory too: then the critic sees what the actor sees, and its other settings but the trunk's say the same."""


class Valued(NamedTuple):
    """Values along a rollout, [T, N] each."""

    value: Tensor
    next_value: Tensor
    """V(next_obs), with the memory of the episode it belongs to; whether it counts is not decided here."""


class ValueNetwork(nn.Module):
    """Values [T, N] or [B] in units of reward. `actor` is the perception it shares, where it shares one."""

    def __init__(
        self,
        spec: Spec,
        settings: ValueSettings,
        rng: torch.Generator,
        *,
        actor: Perception | None = None,
        where: str = "critic",
    ) -> None:
        super().__init__()
        self.settings = settings
        if settings.share != "nothing" and actor is None:
            raise ValueError(f"share: {settings.share} needs the actor's perception")
        if settings.share == "everything" and actor is not None:
            _check_alike(settings, actor, where)
            self.perception = actor
        else:
            lent = actor if settings.share == "encoders" else None
            self.perception = Perception(spec, settings, rng, where, lent)
        self.trunk = ActivatedMLP(self.perception.size, 1, settings.trunk, rng, gain=VALUE_GAIN)

    def initial(self, count: int) -> Carry:
        return self.perception.initial(count)

    def evaluate(self, obs: Obs, carry: Carry = (), resets: Tensor | None = None) -> Tensor:
        """V(s) [T, N], or of any rows [...] where there is no memory."""
        return self.judge(self.perception.sequence(obs, carry, resets))

    def judge(self, seen: Tensor) -> Tensor:
        """The same from what `perception` gave [..., size], for those who share it."""
        values: Tensor = self.trunk(seen)
        return values.squeeze(-1)

    def around(self, obs: Obs, next_obs: Obs, carry: Carry, resets: Tensor) -> Valued:
        """V(s) and V(s′) of a rollout in one pass; only where an episode was left is s′ looked at of its own."""
        seen, successors = self.perception.around(obs, next_obs, carry, resets)
        values = self.judge(seen)
        return Valued(values[: resets.numel()].view(resets.shape), values[successors].view(resets.shape))

    @torch.no_grad()
    def after(self, obs: Obs, carry: Carry, resets: Tensor) -> Carry:
        """What the critic remembers after [T, N] steps, for the next rollout."""
        return self.perception.after(obs, carry, resets)

    def observe(self, obs: Obs, valid: Tensor | None = None) -> None:
        """Take observations into the statistics of its own normalisers; shared ones are their owner's."""
        if self.settings.share != "everything":
            self.perception.observe(obs, valid)


def _check_alike(settings: ValueSettings, actor: Perception, where: str) -> None:
    """Shared eyes see one thing."""
    names = ("sees", "normalize", "normalizer", "encoders", "memory")
    different = [name for name in names if getattr(settings, name) != getattr(actor.settings, name)]
    if different:
        raise ConfigError(
            f"{where}.{different[0]}",
            "differs from the actor's, with which everything is shared",
            got=getattr(settings, different[0]),
            expected=getattr(actor.settings, different[0]),
            do="Say the same in both, or share only the encoders.",
        )
