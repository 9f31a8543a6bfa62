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
from understudy.core.spec import ACTION_MASK, Box, Discrete, Group, MultiDiscrete
from understudy.nn.actor import action_range
from understudy.nn.deployed import Deployed
from understudy.run.onnx_policy import ACTION
from understudy.tools.plain_layers import plain_copy


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

    action_centre: Tensor
    action_half_range: Tensor
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
        for name, values in action_range(policy.spec).items():
            self.register_buffer(f"action_{name}", values)
        self.train(False)

    def forward(self, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        """[batch, …] in the order of `inputs` → [batch, …] in the order of `outputs`; one output comes as it is."""
        chosen, after = self.policy.greedy_action(*self.named(tensors))
        return (self._sent(chosen), *after) if after else self._sent(chosen)

    def named(self, tensors: tuple[Tensor, ...]) -> tuple[Obs, Carry]:
        """Observations by their names, and the carry."""
        count = len(self.observed)
        return dict(zip(self.observed, tensors[:count], strict=True)), tuple(tensors[count:])

    def _sent(self, chosen: Tensor) -> Tensor:
        if self.policy.discrete:
            return chosen.long()
        return torch.clamp(self.action_centre + self.action_half_range * chosen, self.action_low, self.action_high)


def seen_groups(policy: Deployed) -> dict[str, Group]:
    """The observation groups a policy reads, in its order; where it reads segments, the whole group they are of."""
    groups: Mapping[str, Group] = policy.spec.observation
    return {entry.group: groups[entry.group] for entry in policy.inputs}


def choice_counts(policy: Deployed) -> list[int]:
    """How many choices each factor of a discrete action has."""
    space = policy.spec.action
    if isinstance(space, MultiDiscrete):
        return list(space.counts)
    return [space.count] if isinstance(space, Discrete) else []


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
    factors = isinstance(policy.spec.action, MultiDiscrete)
    return Port(ACTION, (len(choice_counts(policy)),) if factors else (), "int64")


def _check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"observation group '{twice[0]}'", "has a name that exported files need", do="Rename the group."
        )
