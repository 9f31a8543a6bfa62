"""Value functions: an ensemble Q(s, a) and a state value V(s)."""

import torch
from torch import Tensor, nn

from understudy.nn.mlp import MLP, NetworkSettings


class QEnsemble(nn.Module):
    """K critics in one: state features [B, S] and actions [B, A] → [K, B]."""

    def __init__(
        self, state_size: int, action_size: int, settings: NetworkSettings, rng: torch.Generator, *, members: int = 2
    ) -> None:
        super().__init__()
        self.mlp = MLP(state_size + action_size, 1, settings, rng, members=members)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        values: Tensor = self.mlp(torch.cat([state, action], dim=1))
        return values.squeeze(-1)


class StateValue(nn.Module):
    """State features [B, S] → V(s) [B]."""

    def __init__(self, state_size: int, settings: NetworkSettings, rng: torch.Generator) -> None:
        super().__init__()
        self.mlp = MLP(state_size, 1, settings, rng)

    def forward(self, state: Tensor) -> Tensor:
        values: Tensor = self.mlp(state)
        return values.squeeze(-1)
