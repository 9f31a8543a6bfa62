"""The seams: what a policy, an algorithm and a source promise each other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from understudy.core.batch import Obs, Rollout, Transitions
from understudy.core.spec import Spec

Metrics = dict[str, Tensor]
"""Flat names (`loss/critic`) to detached scalars; nobody reads them before the log interval."""

Carry = tuple[Tensor, ...]
"""Recurrent state, explicit; empty for policies without memory."""


class Policy(Protocol):
    """Acts in environment units from raw observations."""

    def initial(self, count: int) -> Carry: ...

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Carry]: ...


@dataclass(frozen=True)
class ActionSample:
    """Actions that a policy drew for N observations."""

    action: Tensor
    """In policy space [N, …], as its density knows them."""
    env_action: Tensor
    """The same in environment units [N, …], inside what the environment accepts."""
    log_prob: Tensor
    """[N]."""
    carry: Carry
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """What else was drawn, [N, …] each: stored with the action, and shown to whoever evaluates it, beside the
    observations."""


class ExplorationPolicy(Policy, Protocol):
    """A policy that can say how likely what it does was."""

    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample: ...


@dataclass(frozen=True)
class Demand:
    """What an algorithm needs of the data beyond (s, a, r, s', terminated)."""

    columns: tuple[str, ...] = ()
    horizon: int = 1
    """n of n-step returns."""
    gamma: float = 0.99
    weighed: bool = False
    """It uses importance weights of rows (column `importance`) where there are any."""


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of one observation group, over a dataset's rows."""

    mean: Tensor
    std: Tensor


@dataclass(frozen=True)
class Blueprint:
    """All an algorithm may know when it is built."""

    spec: Spec
    moments: Mapping[str, Moments]
    updates: int
    """Gradient steps planned: the horizon of its schedules."""
    seed: int
    device: torch.device
    environments: int = 0
    """How many step together, for those who learn from rollouts."""


class Algorithm(Protocol):
    """Learns from batches. One update is one gradient step of everything it trains."""

    @property
    def policy(self) -> Policy: ...

    @property
    def demand(self) -> Demand: ...

    def update(self, data: Transitions) -> Metrics: ...


class OnPolicy(Protocol):
    """Learns from rollouts of its own policy. One update is all it learns from one of them."""

    @property
    def policy(self) -> ExplorationPolicy: ...

    def update(self, data: Rollout) -> Metrics: ...


@runtime_checkable
class TakingTurns(Protocol):
    """An algorithm whose updates are of several kinds, such as one that moves its actor at every second only.

    `turn` counts, and returns the method that is due, which may be compiled: a graph cannot ask whose turn it is.
    `update(data)` is `turn()(data)`.
    """

    def turn(self) -> Callable[[Transitions], Metrics]: ...

    def update(self, data: Transitions) -> Metrics: ...


@runtime_checkable
class Concerned(Protocol):
    """An algorithm whose settings may not suit the data's rewards [N], and that says so before the first step."""

    def concerns(self, rewards: Tensor) -> list[str]: ...


class Source(Protocol):
    """Knows how data arrives and nothing of learning."""

    def next(self, policy: Policy) -> Transitions: ...
