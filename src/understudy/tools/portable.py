"""A policy as a plain module, to be traced: tensors in a fixed order in, the greedy action in environment units out.

    (group, …, action_mask, carry_0, …) → action, or (action, next_carry_0, …)

What only a live policy can do is left out: draw, move tensors to a device, refuse a row in which nothing is legal.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError
from understudy.core.protocols import Carry
from understudy.core.spec import ACTION_MASK, Box, Group
from understudy.nn.actor import Actor
from understudy.nn.choice_density import MultiCategorical
from understudy.nn.committee import Committee
from understudy.nn.densities import Density
from understudy.nn.deployed import Deployed
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.nn.gaussian_density import Gaussian, StateGaussian, TanhGaussian
from understudy.tools.plain_layers import plain_copy

ACTION = "action"


@dataclass(frozen=True)
class Port:
    """A tensor [batch, *shape] that goes in or comes out, by its name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "shape": ["batch", *self.shape], "dtype": self.dtype}


class Portable(nn.Module):
    """What is exported: a copy of a policy, of which nothing changes."""

    action_low: Tensor
    action_high: Tensor

    def __init__(self, policy: Deployed) -> None:
        super().__init__()
        self.policy = plain_copy(policy)
        self.groups = seen_groups(policy)
        self.carried = tuple(part[0] for part in self.policy.initial(1))
        """What is remembered at the start of an episode, of one environment."""
        names = [*self.groups, *([ACTION_MASK] if policy.spec.masked else [])]
        self.observed = tuple(names)
        self.inputs = (*_observation_ports(policy, self.groups), *_carry_ports("carry", self.carried))
        self.outputs = (_action_port(policy), *_carry_ports("next_carry", self.carried))
        _check_names([port.name for port in (*self.inputs, *self.outputs)])
        for number, part in enumerate(self.carried):
            self.register_buffer(f"carry_{number}", part.clone())
        space = policy.spec.action
        sides = (space.low, space.high) if isinstance(space, Box) else ((), ())
        for name, side in zip(("low", "high"), sides, strict=True):
            self.register_buffer(f"action_{name}", torch.tensor(side, dtype=torch.float32))
        self.train(False)

    def forward(self, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        """[batch, …] in the order of `inputs` → [batch, …] in the order of `outputs`; one output comes as it is."""
        chosen, after = self._choose(*self.named(tensors))
        return (self._sent(chosen), *after) if after else self._sent(chosen)

    def _choose(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """The greedy action in policy space [batch, …], and what is remembered after it."""
        policy = self.policy
        mask = obs[ACTION_MASK].bool() if policy.spec.masked else None
        if isinstance(policy, Committee):
            return policy.agree(policy.a.view(obs)), carry
        if isinstance(policy, Actor):
            return policy.head.mode(policy.features(policy.view(obs), mask)), carry
        seen, after = policy.perception.step(obs, carry)
        return mode(policy.density, policy.trunk(seen), mask), after

    def named(self, tensors: tuple[Tensor, ...]) -> tuple[Obs, Carry]:
        """Observations by their names, and the carry."""
        count = len(self.observed)
        return dict(zip(self.observed, tensors[:count], strict=True)), tuple(tensors[count:])

    def _sent(self, chosen: Tensor) -> Tensor:
        if self.policy.discrete:
            return chosen.long()
        whole = self.policy.a if isinstance(self.policy, Committee) else self.policy
        return torch.clamp(whole.action_centre + whole.action_half_range * chosen, self.action_low, self.action_high)


def mode(density: Density, outputs: Tensor, mask: Tensor | None) -> Tensor:
    """The greedy action in policy space, from a trunk's outputs [batch, outputs].

    That of a Gaussian is its mean. Its σ is left out: its limits have a gradient of their own, which no file can hold.
    """
    if isinstance(density, Gaussian):
        return outputs
    if isinstance(density, (StateGaussian, TanhGaussian)):
        return density.mode(outputs)
    return density.mode(density.features(outputs, mask))


def seen_groups(policy: Deployed) -> dict[str, Group]:
    """The observation groups a policy reads, in its order; where it reads segments, the whole group they are of."""
    groups: Mapping[str, Group] = policy.spec.observation
    if isinstance(policy, ExploringPolicy):
        return {entry.group: groups[entry.group] for entry in policy.perception.inputs}
    return dict(groups)


def choice_counts(policy: Deployed) -> list[int]:
    """How many choices each factor of a discrete action has."""
    if isinstance(policy, ExploringPolicy):
        return policy.density.counts if isinstance(policy.density, MultiCategorical) else [policy.density.outputs]
    actor = policy.a if isinstance(policy, Committee) else policy
    return [actor.head.outputs]


def _observation_ports(policy: Deployed, groups: Mapping[str, Group]) -> list[Port]:
    ports = [
        Port(name, group.shape, "uint8" if group.dtype == "uint8" else "float32") for name, group in groups.items()
    ]
    return ports + ([Port(ACTION_MASK, (sum(choice_counts(policy)),), "bool")] if policy.spec.masked else [])


def _carry_ports(name: str, carried: Carry) -> list[Port]:
    return [Port(f"{name}_{number}", tuple(part.shape), "float32") for number, part in enumerate(carried)]


def _action_port(policy: Deployed) -> Port:
    if isinstance(policy.spec.action, Box):
        return Port(ACTION, (policy.spec.action.size,), "float32")
    factors = isinstance(policy, ExploringPolicy) and isinstance(policy.density, MultiCategorical)
    return Port(ACTION, (len(choice_counts(policy)),) if factors else (), "int64")


def _check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"observation group '{twice[0]}'", "has a name that exported files need", do="Rename the group."
        )
