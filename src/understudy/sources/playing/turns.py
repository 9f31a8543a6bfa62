"""Whose turn it is: in some episodes somebody else acts instead of the policy that learns.

Who acts is drawn for each environment where an episode begins, with the driver's probability β at that time; it stays
so until the episode ends. With β = 0 nobody is ever driven, not in the first episode either. The action that was sent
is the one that is stored, in policy space, and its log-probability is what the policy that learns gives it: ratios
are 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from understudy.core.batch import POLICY_WEIGHT, Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Carry, Driver, ExplorationPolicy, Recorder
from understudy.core.rng import stream
from understudy.core.state import Static
from understudy.nn.actor import Actor
from understudy.sources.playing.rollout_actor import RolloutActor


@final
@dataclass
class Turns:
    """Of N environments and one driver."""

    name: Static[str]
    driver: Static[Driver]
    driven: Tensor
    """[N], where the driver acts now."""
    draws: torch.Generator
    memories: torch.Generator

    @classmethod
    def build(
        cls, recorders: Mapping[str, Recorder], policy: ExplorationPolicy, count: int, seed: int, device: torch.device
    ) -> "tuple[Turns, ...]":
        """One, or none where no recorder drives."""
        drivers = {name: recorder for name, recorder in recorders.items() if isinstance(recorder, Driver)}
        if len(drivers) > 1:
            raise ConfigError("algo.objectives", "more than one would act instead of the policy", got=sorted(drivers))
        return tuple(cls._of(name, driver, policy, count, seed, device) for name, driver in drivers.items())

    @classmethod
    def _of(
        cls, name: str, driver: Driver, policy: ExplorationPolicy, count: int, seed: int, device: torch.device
    ) -> "Turns":
        if not isinstance(policy, Actor):
            raise ConfigError(f"algo.objectives.{name}", "only a network's own densities can judge others' actions")
        driven = torch.zeros(count, dtype=torch.bool, device=device)
        turns = cls(name, driver, driven, stream(seed, "turns"), stream(seed, "memories"))
        turns.driven.copy_(turns.after(driven, torch.ones_like(driven)))
        return turns

    def after(self, driven: Tensor, begins: Tensor) -> Tensor:
        """[N], drawn anew where an episode begins."""
        share = self.driver.driving().share
        drawn = torch.rand(begins.shape, generator=self.draws, device=self.draws.device).to(begins.device) < share
        return torch.where(begins, drawn, driven)

    def carry_before(self, policy: ExplorationPolicy, carry: Carry) -> Carry:
        """What the policy remembers before a rollout: in some environments, a memory drawn at random."""
        chance = self.driver.driving().resample
        if not chance or not carry:
            return carry
        assert isinstance(policy, Actor)
        count, rng = len(carry[0]), self.memories
        chosen = (torch.rand(count, generator=rng) < chance).to(carry[0].device)
        others = policy.random_carry(count, rng)
        return tuple(torch.where(_wide(chosen, one), other, one) for one, other in zip(carry, others, strict=True))

    def take(
        self, t: int, player: RolloutActor, policy: ExplorationPolicy, env_action: Tensor, facts: Obs, driven: Tensor
    ) -> Tensor:
        """What is sent at step t [N, …], some of it the driver's."""
        assert isinstance(policy, Actor)
        prefix = f"{self.name}/"
        own = {name.removeprefix(prefix): values for name, values in facts.items() if name.startswith(prefix)}
        theirs = self.driver.drive(own).to(env_action)
        sent = torch.where(_wide(driven.to(env_action.device), env_action), theirs, env_action)
        player.replace(t, driven, policy.from_env_action(sent.to(self.driven.device)))
        return sent

    def facts(self, driven: Tensor) -> Obs:
        """Of a step: who acted [N]."""
        return {f"{self.name}/driven": driven}

    def policy_weights(self, facts: Obs) -> Obs:
        """What rows count in the policy's loss [T, N], where those that were driven count something else than 1."""
        weight, driven = self.driver.driving().policy_weight, facts[f"{self.name}/driven"]
        if weight == 1.0 or not bool(driven.any()):
            return {}
        return {POLICY_WEIGHT: torch.where(driven, weight, 1.0)}


def _wide(flags: Tensor, like: Tensor) -> Tensor:
    return flags.reshape(-1, *[1] * (like.dim() - 1))
