"""What a run trains and a policy file holds: networks that act, with a spec and settings to rebuild them from."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.protocols import Carry
from understudy.core.settings import Settings
from understudy.core.spec import Spec
from understudy.nn.actor import Actor, EstimatingActorSettings
from understudy.nn.committee import Committee, CommitteeSettings
from understudy.nn.segments import Input
from understudy.nn.value_policy import ValuePolicy, ValuePolicySettings


@runtime_checkable
class Deployed(Protocol):
    """A module that acts alone. What is deployed is an `nn.Module`; those of its methods that others use are here."""

    training: bool

    @property
    def kind(self) -> str:
        """What a file calls it."""

    @property
    def spec(self) -> Spec: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def discrete(self) -> bool: ...

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it reads of observations."""

    @property
    def action_half_range(self) -> Tensor: ...

    def initial(self, count: int) -> Carry: ...

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Carry]: ...

    def __call__(
        self,
        obs: ArrayLike | Mapping[str, ArrayLike],
        action_mask: ArrayLike | None = None,
        *,
        greedy: bool = True,
        seed: int = 0,
    ) -> NDArray[Any]:
        """Actions as NumPy for one observation or a batch of them."""

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """In policy space, in operations that can be traced: what is exported."""

    def train(self, mode: bool = True) -> Self: ...

    def requires_grad_(self, requires_grad: bool = True) -> Self: ...

    def cpu(self) -> Self: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


@runtime_checkable
class Choosing(Protocol):
    """A policy that can choose among actions."""

    def ratings(self, obs: Obs, carry: Carry) -> Tensor:
        """What it rates its choices by [N, K], forbidden ones lowest."""


Shape = TypeVar("Shape", bound=Settings)


@dataclass(frozen=True)
class PolicyKind(Generic[Shape]):
    """How one kind of policy is rebuilt."""

    settings: type[Shape]
    blank: Callable[[Spec, Shape, torch.Generator], Deployed]


SINGLE_KINDS: dict[str, PolicyKind[Any]] = {
    Actor.kind: PolicyKind(EstimatingActorSettings, Actor),
    ValuePolicy.kind: PolicyKind(ValuePolicySettings, ValuePolicy.blank),
    Committee.kind: PolicyKind(CommitteeSettings, Committee.blank),
}
"""Policies that are not made of policies that could act alone."""


def blank_single(kind: str, spec: Spec, settings: object, rng: torch.Generator, where: str = "settings") -> Deployed:
    """A policy of this kind and shape that is no set of others, to be filled."""
    return blank_of(SINGLE_KINDS, kind, spec, settings, rng, where)


def blank_of(
    kinds: Mapping[str, PolicyKind[Any]], kind: str, spec: Spec, settings: object, rng: torch.Generator, where: str
) -> Deployed:
    """A policy of one of these kinds."""
    if kind not in kinds:
        raise ConfigError(where, f"no kind of policy '{kind}'", expected=sorted(kinds), do=did_you_mean(kind, kinds))
    known = kinds[kind]
    return known.blank(spec, known.settings.parse(settings, where), rng)
