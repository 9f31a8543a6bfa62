"""Policies for the length of one rollout, in which nothing about them changes."""

from typing import Protocol, final

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.protocols import Carry, Explorer
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.nn.gaussian_density import Gaussian, normal_log_prob


class Player(Protocol):
    """Plays T steps in order, and then tells what it did."""

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """What is sent to N environments at step t [N, …], and what is remembered."""

    def told(self) -> tuple[Tensor, Tensor]:
        """Actions in policy space [T, N, …] and their log-probabilities [T, N]."""


@final
class DrawingPlayer:
    """Any explorer: it is asked at every step."""

    def __init__(self, policy: Explorer, rng: torch.Generator, device: torch.device) -> None:
        self._policy, self._rng, self._device = policy, rng, device
        self._actions: list[Tensor] = []
        self._log_probs: list[Tensor] = []

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        drawn = self._policy.draw(obs, carry, self._rng)
        self._actions.append(drawn.action.to(self._device, copy=True))
        self._log_probs.append(drawn.log_prob.to(self._device, torch.float32, copy=True))
        return drawn.sent, drawn.carry

    def told(self) -> tuple[Tensor, Tensor]:
        return torch.stack(self._actions), torch.stack(self._log_probs)


@final
class GaussianPlayer:
    """A Gaussian policy whose σ is the same in every state: noise of all steps is drawn in one call before the first,
    and log-probabilities are computed in one after the last. Both cost more than the network if done at each step."""

    def __init__(
        self, policy: ExploringPolicy, density: Gaussian, steps: int, count: int, rng: torch.Generator
    ) -> None:
        self._policy, self._perception = policy, policy.perception
        self._log_std = density.log_std.clamp(density.low, density.high)
        shape = (steps, count, density.outputs)
        noise = torch.randn(shape, generator=rng).to(self._log_std)
        self._noise = noise.mul_(self._log_std.exp()).unbind(0)
        self._mean, self._action = torch.empty_like(noise), torch.empty_like(noise)
        self._means, self._actions = self._mean.unbind(0), self._action.unbind(0)

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        seen, carry = self._perception.step(obs, carry)
        mean = self._means[t].copy_(self._policy.trunk.outputs(seen))
        return self._policy.send(torch.add(mean, self._noise[t], out=self._actions[t])), carry

    def told(self) -> tuple[Tensor, Tensor]:
        return self._action, normal_log_prob(self._mean, self._log_std, self._action)


def player_of(policy: Explorer, steps: int, count: int, rng: torch.Generator, device: torch.device) -> Player:
    """The quickest that plays this policy."""
    if isinstance(policy, ExploringPolicy) and isinstance(policy.density, Gaussian):
        return GaussianPlayer(policy, policy.density, steps, count, rng)
    return DrawingPlayer(policy, rng, device)
