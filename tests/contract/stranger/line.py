"""Environments of another package: N points on a line, all stepped at once, that should come to rest at 0.

No registry knows them. A run gets them from Python: `us.train(config, make_envs=Line)`, with `env.simulator=custom`.
"""

from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.envs.vector.contract import Step

LENGTH = 20
"""Steps of an episode: a time limit, so episodes are truncated and never terminate."""


@final
class Line:
    def __init__(self, count: int) -> None:
        self.count = count
        self.spec = Spec({"state": Group((2,), "float32")}, Box((-1.0,), (1.0,)))
        self._state = torch.zeros(count, 2)
        self._age = torch.zeros(count, dtype=torch.int64)
        self._rng = stream(0, "line")

    def reset(self, seed: int) -> Obs:
        self._rng = stream(seed, "line")
        self._state = self._begin()
        self._age = torch.zeros(self.count, dtype=torch.int64)
        return {"state": self._state.clone()}

    def step(self, action: Tensor) -> Step:
        position, speed = self._state.unbind(1)
        speed = 0.9 * speed + 0.2 * action[:, 0].clamp(-1, 1)
        position = position + 0.2 * speed
        reward = -(position.square() + 0.1 * speed.square())
        self._age += 1
        ended = self._age >= LENGTH
        final = torch.stack([position, speed], 1)  # the true successor, also where an episode ends
        self._state = torch.where(ended.unsqueeze(1), self._begin(), final)
        self._age[ended] = 0
        nothing, everything = torch.zeros_like(ended), torch.ones_like(ended)
        return Step({"state": self._state.clone()}, {"state": final}, reward, nothing, ended, everything, {})

    def save(self) -> dict[str, Tensor]:
        """With this and `load` a run goes on to the bit; without, it goes on with new episodes."""
        generator = torch.from_numpy(np.tile(self._rng.get_state().numpy(), (self.count, 1)))
        return {"state": self._state.clone(), "age": self._age.clone(), "generator": generator}

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        self._state, self._age = saved["state"].clone(), saved["age"].clone()
        self._rng.set_state(saved["generator"][0].clone())
        return {"state": self._state.clone()}

    def close(self) -> None:
        """There is nothing to let go of."""

    def _begin(self) -> Tensor:
        return torch.cat([2 * torch.rand(self.count, 1, generator=self._rng) - 1, torch.zeros(self.count, 1)], 1)
