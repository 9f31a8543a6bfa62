"""An objective of another package: what a small network cannot predict yet is worth something.

r ← r + w·‖f(s) − s²‖²/S,  and f learns from every rollout
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.batch import Rollout
from understudy.core.protocols import BuildContext, Metrics, Roles
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.objectives import Weights
from understudy.parts.optim import Adam


class Config(Settings):
    """Curiosity."""

    weight: float = 0.1
    """w."""
    learning_rate: float = 1e-2
    """Of f."""


@final
@dataclass
class Curiosity:
    config: Static[Config]
    weights: Static[Weights]
    network: nn.Linear
    optimizer: Adam
    lessons: int = 0

    def rewards(self, rollout: Rollout) -> dict[str, Tensor]:
        return {"surprise": self._errors(rollout)}

    def learn(self, rollout: Rollout) -> Metrics:
        loss = self._errors(rollout)[rollout.valid].mean()
        self.optimizer.minimise(loss, self.config.learning_rate)
        self.lessons += 1
        return {"loss": loss}

    def _errors(self, rollout: Rollout) -> Tensor:
        """[T, N]."""
        state = rollout.obs["state"]
        predicted: Tensor = self.network(state)
        return (predicted - state.square()).square().mean(-1)


def needs(config: Config) -> Roles:
    return Roles()


def build(config: Config, context: BuildContext) -> Curiosity:
    size = context.spec.observation["state"].size
    network = nn.Linear(size, size, device=context.device)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    return Curiosity(config, Weights(rewards={"surprise": config.weight}), network, Adam.over(network.parameters()))
