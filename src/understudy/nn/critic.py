"""Value functions of actions: ensembles Q(s, a) for continuous and discrete actions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy.core.errors import ConfigError
from understudy.core.spec import Discrete, Spec
from understudy.nn.mlp import MLP
from understudy.nn.perception import Perception, RoleSettings


class CriticSettings(RoleSettings):
    """What a critic sees, and its shape."""

    share_encoder: bool = False
    """Inputs that the actor sees, too, and encodes alike have one encoder for both. Where values are learned from data
    the critic's loss trains it; PPO's losses both do."""


class QEnsemble(nn.Module):
    """K critics in one: what its perception gave [B, S] and actions [B, A], or actions of each critic's own [K, B, A] →
    [K, B]."""

    def __init__(
        self,
        spec: Spec,
        settings: CriticSettings,
        rng: torch.Generator,
        *,
        members: int = 2,
        perception: Perception | None = None,
        where: str = "critic",
    ) -> None:
        super().__init__()
        self.settings = settings
        self.perception = perception or Perception(spec, settings, rng, where)
        self.trunk = MLP(self.perception.size + spec.box.size, 1, settings, rng, members=members)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        if action.dim() == 3:
            state = state.expand(len(action), *state.shape)
        values: Tensor = self.trunk(torch.cat([state, action], dim=-1))
        return values.squeeze(-1)

    def frozen(self, state: Tensor, action: Tensor, member: int | Tensor | None = None) -> Tensor:
        """The same values for a policy to climb: gradients go to the action only. [K, B], [B] of one member, or [M, B]
        of some [M] of them, which alone are computed."""
        return self.trunk.frozen(torch.cat([state.detach(), action], dim=1), member).squeeze(-1)


class ActionValues(nn.Module):
    """K critics with a value for each of N discrete actions, or with M quantiles of what follows from each.

    With `one_hot` the action is an input, as others have it, and knowing all values takes N passes.
    """

    def __init__(
        self,
        spec: Spec,
        settings: CriticSettings,
        rng: torch.Generator,
        *,
        members: int = 2,
        quantiles: int = 1,
        one_hot: bool = False,
        perception: Perception | None = None,
        where: str = "critic",
    ) -> None:
        super().__init__()
        assert isinstance(spec.action, Discrete)
        self.settings = settings
        self.quantiles = quantiles
        self.count = count = spec.action.count
        self.one_hot = one_hot
        self.perception = perception or Perception(spec, settings, rng, where)
        size = self.perception.size
        inputs, outputs = (size + count, 1) if one_hot else (size, count)
        self.trunk = MLP(inputs, outputs * quantiles, settings, rng, members=members)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """Q(s, a) [K, B] of the actions [B] that were taken."""
        if self.one_hot:
            taken = F.one_hot(action, self.count).to(state)
            return mean_outcome(self.trunk(torch.cat([state, taken], dim=1)), self.quantiles).squeeze(-1)
        values = self.every(state)
        return values.gather(-1, action.expand(len(values), -1).unsqueeze(-1)).squeeze(-1)

    def every(self, state: Tensor) -> Tensor:
        """Q(s, ·) [K, B, N]."""
        return mean_outcome(self._of_all(state), self.quantiles)

    def outcomes(self, state: Tensor) -> Tensor:
        """Quantiles [K, B, N, M]; M = 1 is the value itself."""
        values = self._of_all(state)
        return values.view(*values.shape[:-1], -1, self.quantiles)

    def _of_all(self, state: Tensor) -> Tensor:
        """[K, B, N·M]."""
        if not self.one_hot:
            values: Tensor = self.trunk(state)
            return values
        rows = state.shape[0]  # its length, to whoever traces it
        choices = torch.eye(self.count, device=state.device).repeat(rows, 1)
        values = self.trunk(torch.cat([state.repeat_interleave(self.count, dim=0), choices], dim=1))
        return values.view(values.shape[0], rows, -1)


def mean_outcome(outputs: Tensor, quantiles: int) -> Tensor:
    """A network's outputs [..., N·M] as N values, each the mean of M quantiles."""
    return outputs if quantiles == 1 else outputs.view(*outputs.shape[:-1], -1, quantiles).mean(-1)


Critic = QEnsemble | ActionValues


def make_critic(
    spec: Spec,
    settings: CriticSettings,
    rng: torch.Generator,
    *,
    members: int = 2,
    one_hot: bool = False,
    perception: Perception | None = None,
    where: str = "critic",
) -> Critic:
    """The ensemble that fits the action space; `one_hot` is for choices only."""
    if isinstance(spec.action, Discrete):
        return ActionValues(spec, settings, rng, members=members, one_hot=one_hot, perception=perception, where=where)
    if one_hot:
        raise ConfigError("algo.critic_input", "onehot is for discrete actions", got=spec.action.describe())
    return QEnsemble(spec, settings, rng, members=members, perception=perception, where=where)
