"""A small objective for tests: stay near a recorded label, on both sides of a mirror (record + augment + loss)."""

from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import BuildContext, Carry, Roles
from understudy.core.settings import Settings
from understudy.core.state import Static
from understudy.objectives import Evaluation, Weights
from understudy.parts.ppo.batch import PPOBatch


class Config(Settings):
    """A mirror."""

    near: float = 1.0
    """Weight of the distance to the label."""
    idle: float = 0.5
    """Weight of a term that no parameter is in."""
    mirrored: bool = True
    """Rows are doubled."""


@final
@dataclass
class Mirror:
    weights: Static[Weights]
    mirrored: Static[bool]
    calls: Static[list[tuple[str, Any]]] = field(default_factory=list)
    """What each hook was given."""

    def initial(self, count: int) -> Carry:
        return (torch.zeros(count),)

    def record(self, obs: Obs, carry: Carry) -> tuple[dict[str, Tensor], Carry]:
        self.calls.append(("record", obs))
        return {"label": obs["state"].mean(-1), "age": carry[0]}, (carry[0] + 1.0,)

    def augment(self, batch: PPOBatch) -> PPOBatch:
        self.calls.append(("augment", batch))
        if not self.mirrored:
            return batch

        def twice(column: Tensor, sign: float = 1.0) -> Tensor:
            return torch.cat([column, sign * column])

        return PPOBatch(
            {name: twice(values, -1.0) for name, values in batch.policy_obs.items()},
            {name: twice(values, -1.0) for name, values in batch.value_obs.items()},
            twice(batch.action, -1.0),
            twice(batch.log_prob),
            twice(batch.advantage),
            twice(batch.value),
            twice(batch.target),
            {name: twice(values) for name, values in batch.extra.items()},
        )

    def loss(self, batch: PPOBatch, evaluation: Evaluation) -> dict[str, Tensor]:
        self.calls.append(("loss", (replace(batch), evaluation)))
        mode = evaluation.distribution.mode(evaluation.features)
        return {
            "near": (mode.mean(-1) - batch.extra["mirror/label"]).square(),
            "idle": torch.ones_like(batch.advantage),
        }


def needs(config: Config) -> Roles:
    return Roles()


def build(config: Config, context: BuildContext) -> Mirror:
    return Mirror(Weights(losses={"near": config.near, "idle": config.idle}), config.mirrored)
