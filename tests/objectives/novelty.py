"""A small objective for tests: what a network cannot predict yet is worth something (rewards + learn)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from understudy.core.batch import Rollout
from understudy.core.protocols import BuildContext, Metrics, Roles
from understudy.core.rng import stream
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.objectives import Weights
from understudy.parts.optim import Adam


class Config(Settings):
    """Novelty."""

    weight: float = 1.0
    """Of the reward."""


@final
@dataclass
class Novelty:
    weights: Static[Weights]
    predictor: nn.Linear
    adam: Adam
    noise: torch.Generator
    lessons: int = 0

    def rewards(self, rollout: Rollout) -> dict[str, Tensor]:
        return {"surprise": self._errors(rollout)}

    def learn(self, rollout: Rollout) -> Metrics:
        """One step, with some noise so that a forgotten stream shows."""
        self.lessons += 1
        loss = self._errors(rollout)[rollout.valid].mean()
        self.adam.minimise(loss * torch.rand((), generator=self.noise), 1e-2)
        return {"loss": loss}

    def _errors(self, rollout: Rollout) -> Tensor:
        state = rollout.obs["state"]
        predicted: Tensor = self.predictor(state)
        return (predicted - state.square()).square().mean(-1)


def needs(config: Config) -> Roles:
    return Roles()


def build(config: Config, context: BuildContext) -> Novelty:
    (width,) = context.spec.observation["state"].shape
    predictor = nn.Linear(width, width)
    with torch.no_grad():
        for parameter in predictor.parameters():
            parameter.zero_()
    weights = Weights(rewards={"surprise": config.weight})
    return Novelty(weights, predictor, Adam.over(predictor.parameters()), stream(context.seed, "novelty"))
