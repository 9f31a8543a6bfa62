"""Policies for the length of one rollout, in which nothing about them changes."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import RunError
from understudy.core.protocols import Carry, ExplorationPolicy
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian, normal_log_prob
from understudy.nn.small_policy import SmallPolicy, is_small


class Drawn(NamedTuple):
    """What a policy drew in T steps of N environments."""

    action: Tensor
    """In policy space [T, N, …]."""
    log_prob: Tensor
    """[T, N]."""
    extra: Mapping[str, Tensor]
    """What else it drew, [T, N, …] each."""


class RolloutActor(Protocol):
    """Plays T steps in order, and then says what it drew."""

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """What is sent to N environments at step t [N, …], and what is remembered."""

    def replace(self, t: int, rows: Tensor, action: Tensor) -> None:
        """In some environments [N] somebody did this instead at step t, the last that was played [N, …], in policy
        space: what is told of them is told of it."""

    def drawn(self, obs: Obs) -> Drawn:
        """Of all steps, after observations [T, N, …]."""


@final
class SamplingActor:
    """Any explorer: it is asked at every step."""

    def __init__(self, policy: ExplorationPolicy, rng: torch.Generator, device: torch.device) -> None:
        self._policy, self._rng, self._device = policy, rng, device
        self._actions: list[Tensor] = []
        self._log_probs: list[Tensor] = []
        self._extras: list[Obs] = []
        self._before: tuple[Obs, Carry] = ({}, ())

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        self._before = obs, carry
        drawn = self._policy.draw(obs, carry, self._rng)
        self._actions.append(drawn.action.to(self._device, copy=True))
        self._log_probs.append(drawn.log_prob.to(self._device, torch.float32, copy=True))
        self._extras.append({name: values.to(self._device, copy=True) for name, values in drawn.extra.items()})
        return drawn.env_action, drawn.carry

    def replace(self, t: int, rows: Tensor, action: Tensor) -> None:
        policy, (obs, carry) = self._policy, self._before
        assert isinstance(policy, Actor)
        seen = {name: values.unsqueeze(0).to(self._device) for name, values in {**obs, **self._extras[t]}.items()}
        judged = policy.evaluate(seen, carry, torch.zeros_like(rows).unsqueeze(0), action.unsqueeze(0))
        self._actions[t] = torch.where(_wide(rows, action), action.to(self._actions[t]), self._actions[t])
        self._log_probs[t] = torch.where(rows, judged.log_prob.squeeze(0).float(), self._log_probs[t])

    def drawn(self, obs: Obs) -> Drawn:
        return Drawn(torch.stack(self._actions), torch.stack(self._log_probs), stacked(self._extras))


@final
class GaussianActor:
    """A Gaussian policy whose σ is the same in every state: noise of all steps is drawn in one call before the first,
    and log-probabilities are computed in one after the last. Both cost more than the network if done at each step."""

    def __init__(self, policy: Actor, density: Gaussian, steps: int, count: int, rng: torch.Generator) -> None:
        self._policy = policy
        self._log_std = density.log_std.clamp(density.limits.low, density.limits.high)
        noise = scaled_noise((steps, count, density.outputs), self._log_std, rng)
        self._mean, self._action = torch.empty_like(noise), torch.empty_like(noise)
        self._steps = list(zip(*(whole.unbind(0) for whole in (noise, self._mean, self._action)), strict=True))
        self._mask = policy.draw_mask((steps, count), rng)
        self._extras: list[Obs] = []

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        noise, mean, action = self._steps[t]
        seen, carry, extra = self._policy.see(obs, carry, None if self._mask is None else self._mask[t])
        self._extras.append(extra)
        mean.copy_(self._policy.trunk.outputs(seen))
        return self._policy.to_env_action(torch.add(mean, noise, out=action)), carry

    def replace(self, t: int, rows: Tensor, action: Tensor) -> None:
        own = self._steps[t][2]
        own.copy_(torch.where(_wide(rows, own), action, own))

    def drawn(self, obs: Obs) -> Drawn:
        return Drawn(self._action, normal_log_prob(self._mean, self._log_std, self._action), stacked(self._extras))


@final
class SmallGaussianActor:
    """The same for small policies without memory: their means come from NumPy (nn.small_policy). Log-probabilities are
    what torch thinks of the actions, in one call, as whoever learns from them will think."""

    def __init__(self, policy: Actor, density: Gaussian, steps: int, count: int, rng: torch.Generator) -> None:
        self._policy, self._small = policy, SmallPolicy(policy, count)
        self._log_std = density.log_std.clamp(density.limits.low, density.limits.high)
        noise = scaled_noise((steps, count, density.outputs), self._log_std, rng)
        self._action = torch.empty_like(noise)
        self._steps = list(zip(noise.numpy(), self._action.numpy(), strict=True))
        ranges = policy.action_centre, policy.action_half_range, policy.action_low, policy.action_high
        self._centre, self._half_range, self._low, self._high = (one.numpy() for one in ranges)

    def play(self, t: int, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        noise, action = self._steps[t]
        np.add(self._small.outputs(obs), noise, out=action)
        units = np.multiply(action, self._half_range)
        units += self._centre
        np.minimum(np.maximum(units, self._low, out=units), self._high, out=units)
        return torch.from_numpy(units), carry

    def replace(self, t: int, rows: Tensor, action: Tensor) -> None:
        np.copyto(self._steps[t][1], action.numpy(), where=rows.numpy()[:, None])

    def drawn(self, obs: Obs) -> Drawn:
        policy = self._policy
        means = policy.trunk.outputs(policy.perception.look(obs).flatten(0, 1)).view_as(self._action)
        return Drawn(self._action, normal_log_prob(means, self._log_std, self._action), {})


def _wide(flags: Tensor, like: Tensor) -> Tensor:
    return flags.reshape(-1, *[1] * (like.dim() - 1))


def stacked(facts: list[Obs]) -> Obs:
    """Facts of one step after the other [N, …] as columns [T, N, …]; every step has the same names."""
    if not facts:
        return {}
    if any(one.keys() != facts[0].keys() for one in facts):
        names = sorted({name for one in facts for name in one})
        raise RunError("a rollout's facts", "are not the same at every step", got=names)
    return {name: torch.stack([one[name] for one in facts]) for name in facts[0]}


def scaled_noise(shape: tuple[int, ...], log_std: Tensor, rng: torch.Generator) -> Tensor:
    """σ·z, z of a unit normal."""
    return torch.randn(shape, generator=rng).to(log_std).mul_(log_std.exp())


def rollout_actor(
    policy: ExplorationPolicy, steps: int, count: int, rng: torch.Generator, device: torch.device
) -> RolloutActor:
    """The quickest that plays this policy."""
    if isinstance(policy, Actor) and isinstance(policy.distribution, Gaussian):
        kind = SmallGaussianActor if is_small(policy, count) else GaussianActor
        return kind(policy, policy.distribution, steps, count, rng)
    return SamplingActor(policy, rng, device)
